"""Write one file that runs rmqtool on hosts without internet: `write_zipapp.py WHEEL OUTPUT`.

It holds the wheels for several Python versions and processors as they are, and `zipapp/`, which unpacks those that fit.
"""

from __future__ import annotations

import argparse
import email
import hashlib
import json
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path
from typing import Final

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

TARGETS: Final = tuple(f"3.{minor}-{machine}" for minor in (13, 12, 11) for machine in ("x86_64", "aarch64"))
GLIBC_MINORS: Final = range(28, 16, -1)
"""Of glibc 2: the wheels may need any of these, so a host needs the newest."""
START: Final = Path(__file__).parent / "zipapp"
DATE: Final = (1980, 1, 1, 0, 0, 0)


def download(wheel: Path, extras: str, target: str, folder: Path) -> list[Path]:
    """The wheels that rmqtool needs on a target, and its own, in a directory of their own."""
    version, _, machine = target.partition("-")
    platforms = [f"manylinux_2_{minor}_{machine}" for minor in GLIBC_MINORS] + [f"manylinux2014_{machine}"]
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check", "--only-binary=:all:"]
    command += ["--dest", str(folder / target), "--python-version", version, "--implementation", "cp"]
    command += [f"--platform={name}" for name in platforms]
    requirements = [f"{wheel.resolve()}[{extras}]" if extras else str(wheel.resolve())]
    while True:
        subprocess.run([*command, *requirements], check=True)
        wheels = sorted((folder / target).glob("*.whl"))
        lacking = missing(wheels, target, extras)
        if not lacking:
            return wheels
        if lacking <= set(requirements):
            sys.exit(f"pip does not find for {target}: {', '.join(sorted(lacking))}")
        requirements += sorted(lacking)


def missing(wheels: list[Path], target: str, extras: str) -> set[str]:
    """What the wheels need and do not have: pip judges conditions on the Python by the Python that runs it."""
    version, _, machine = target.partition("-")
    environment = {"python_version": version, "python_full_version": f"{version}.0", "platform_machine": machine}
    needs = {canonicalize_name(path.name.partition("-")[0]): requirements_of(path) for path in wheels}
    lacking: set[str] = set()
    waiting = [Requirement(f"rmqtool[{extras}]" if extras else "rmqtool")]
    visited: set[str] = set()
    while waiting:
        requirement = waiting.pop()
        name = canonicalize_name(requirement.name)
        if name not in needs:
            lacking.add(f"{requirement.name}{requirement.specifier}")
        elif str(requirement) not in visited:
            visited.add(str(requirement))
            chosen = ("", *sorted(requirement.extras))
            waiting += [
                need
                for need in needs[name]
                if need.marker is None or any(need.marker.evaluate(environment | {"extra": extra}) for extra in chosen)
            ]
    return lacking


def requirements_of(wheel: Path) -> list[Requirement]:
    """What a wheel says that it needs."""
    with zipfile.ZipFile(wheel) as packed:
        (name,) = [name for name in packed.namelist() if name.endswith(".dist-info/METADATA") and name.count("/") == 1]
        fields = email.message_from_bytes(packed.read(name))
    return [Requirement(line) for line in fields.get_all("Requires-Dist") or []]


def pack(wheels: dict[str, list[Path]], output: Path) -> None:
    """Write the file, out of the wheels of each target."""
    files = {path.name: path for paths in wheels.values() for path in paths}
    digest = hashlib.sha256()
    for name in sorted(files):
        digest.update(name.encode() + hashlib.sha256(files[name].read_bytes()).digest())
    targets = {target: [f"wheels/{path.name}" for path in paths] for target, paths in wheels.items()}
    contents = json.dumps({"digest": digest.hexdigest()[:16], "targets": targets}, indent=1)
    output.parent.mkdir(parents=True, exist_ok=True)
    with output.open("wb") as stream:
        stream.write(b"#!/usr/bin/env python3\n")
        with zipfile.ZipFile(stream, "w") as archive:
            for path in sorted(START.glob("*.py")):
                archive.writestr(zipfile.ZipInfo(path.name, DATE), path.read_bytes(), zipfile.ZIP_DEFLATED)
            archive.writestr(zipfile.ZipInfo("contents.json", DATE), contents, zipfile.ZIP_DEFLATED)
            for name in sorted(files):
                archive.writestr(zipfile.ZipInfo(f"wheels/{name}", DATE), files[name].read_bytes())
    output.chmod(0o755)


def main() -> None:
    """Ask pip for the wheels of each target, and pack them."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("wheel", type=Path)
    parser.add_argument("output", type=Path)
    parser.add_argument("--targets", nargs="+", default=TARGETS, metavar="PYTHON-PROCESSOR")
    parser.add_argument("--extras", default="", help="such as fast,rocksdb,tui; none if left out")
    chosen = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        wheels = {target: download(chosen.wheel, chosen.extras, target, folder) for target in chosen.targets}
        pack(wheels, chosen.output)
    sys.stdout.write(f"{chosen.output}: {chosen.output.stat().st_size / 1e6:.0f} MB, {', '.join(chosen.targets)}\n")


if __name__ == "__main__":
    main()
