"""The cookbook's script before a broker's start lets it start where nothing is lost by it, and nowhere else."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import Unpacked

ROOT = Path(__file__).resolve().parent.parent
SCRIPT = re.compile(r"^```sh\n(#!/bin/sh\n.*?)^```$", re.MULTILINE | re.DOTALL)


def run_script(store: Path, version: str, folder: Path) -> int:
    (script,) = SCRIPT.findall((ROOT / "docs/cookbook.md").read_text("utf-8"))
    tool = folder / "rmqtool"
    tool.write_text(f'#!/bin/sh\nPYTHONPATH={ROOT} exec {sys.executable} -m rmqtool "$@"\n')
    tool.chmod(0o755)
    env = {**os.environ, "PATH": f"{folder}:{os.environ['PATH']}", "STORE": str(store), "VERSION": version}
    return subprocess.run(["/bin/sh", "-c", script], env=env, capture_output=True, check=False).returncode


@pytest.mark.parametrize(
    ("name", "version", "code"),
    [("5.5.0-crashed", "5.5.0", 0), ("4.9.7-damage-flip-body-middle-file-abort", "4.9.7", 3)],
)
def test_the_script_starts_the_broker_only_where_nothing_is_lost(
    golden_copy: Unpacked, tmp_path: Path, name: str, version: str, code: int
) -> None:
    store = golden_copy(name)
    assert run_script(store, version, tmp_path) == code
    assert (store / "abort").exists() == (code != 0)


def test_the_script_starts_the_broker_on_a_new_volume(tmp_path: Path) -> None:
    assert run_script(tmp_path / "new", "5.5.0", tmp_path) == 0
