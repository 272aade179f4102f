"""Environments for tests of what is installed: made offline, out of what the suite's own environment has."""

from __future__ import annotations

import os
import subprocess
import sys
from importlib.metadata import Distribution, distribution
from pathlib import Path

from packaging.requirements import Requirement

ROOT = Path(__file__).resolve().parent.parent.parent


def needed(requirements: list[str]) -> dict[str, Distribution]:
    """The distributions that these requirements bring, and what they need themselves."""
    needs: dict[str, Distribution] = {}
    waiting = [Requirement(line) for line in requirements]
    while waiting:
        requirement = waiting.pop()
        name = requirement.name.lower()
        if name not in needs and (requirement.marker is None or requirement.marker.evaluate({"extra": ""})):
            needs[name] = distribution(name)
            waiting += [Requirement(line) for line in needs[name].requires or []]
    return needs


def environment_of(folder: Path, wheel: Path, requirements: list[str]) -> Path:
    """A virtual environment with the wheel and links to what it requires, and nothing else; its `bin`."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", folder], check=True)
    python = folder / "bin/python"
    pip = [sys.executable, "-m", "pip", "--python", str(python), "install", "--quiet", "--no-index", "--no-deps"]
    subprocess.run([*pip, "--disable-pip-version-check", str(wheel)], check=True, timeout=300)
    (site,) = folder.glob("lib/python*/site-packages")
    for each in needed(requirements).values():
        tops = {path.parts[0] for path in each.files or [] if path.parts[0] not in {"..", "__pycache__"}}
        for top in tops:
            if not (site / top).exists():
                (site / top).symlink_to(Path(str(each.locate_file(top))))
    return folder / "bin"


def plain_environment(home: Path) -> dict[str, str]:
    """Of a service without a login: no variables of ours, an activated environment least of all."""
    return {"PATH": "/usr/bin:/bin", "HOME": str(home), "LANG": "C.UTF-8", "TZ": "UTC"}


def run(command: list[str | Path], home: Path, *, timeout: int = 300, **more: str) -> subprocess.CompletedProcess[str]:
    """Run a command as a service without a login would."""
    return subprocess.run(
        [os.fspath(word) for word in command],
        cwd=home,
        env=plain_environment(home) | more,
        capture_output=True,
        text=True,
        check=False,
        timeout=timeout,
    )
