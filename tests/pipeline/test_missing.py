"""Without what Spark needs there is one line that says what is missing, and exit code 4; everything else works."""

from __future__ import annotations

import os
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

from rmqtool.pipeline.session import told
from tests.conftest import Unpacked

ROOT = Path(__file__).resolve().parents[2]
JAVA_11 = """#!/bin/sh
echo 'openjdk version "11.0.22" 2024-01-16' >&2
"""
PYSPARK_3 = {"pyspark/__init__.py": '__version__ = "3.5.1"\n', "pyspark/sql/__init__.py": ""}


def ran(folder: Path, *arguments: object, **environment: str) -> subprocess.CompletedProcess[str]:
    """A command line in a Python that has what lies in a folder, and nothing of its own."""
    return subprocess.run(
        [sys.executable, "-S", "-m", "rmqtool", *map(str, arguments)],
        env={"PYTHONPATH": f"{ROOT}:{folder}", "PATH": os.environ["PATH"], **environment},
        capture_output=True,
        text=True,
        check=False,
        timeout=600,
    )


@pytest.fixture
def without_pyspark(tmp_path: Path) -> Path:
    """The installed packages, without pyspark."""
    folder = tmp_path / "packages"
    folder.mkdir()
    for entry in Path(sysconfig.get_path("purelib")).iterdir():
        if not entry.name.startswith("pyspark"):
            (folder / entry.name).symlink_to(entry)
    return folder


def assert_one_line(found: subprocess.CompletedProcess[str], said: str) -> None:
    assert (found.returncode, found.stdout) == (4, ""), found.stderr
    assert found.stderr.count("\n") == 1
    assert said in found.stderr


@pytest.mark.parametrize(
    "command", [["export", "--to", "out"], *([name, "--master", "local[1]"] for name in ("verify", "stats"))]
)
def test_without_pyspark(without_pyspark: Path, golden: Unpacked, command: list[str]) -> None:
    store = golden("5.5.0-clean-basic")
    assert_one_line(ran(without_pyspark, command[0], store, *command[1:]), "pyspark is not installed")
    assert ran(without_pyspark, "verify", store).returncode == 0


def test_with_pyspark_3(without_pyspark: Path, golden: Unpacked, tmp_path: Path) -> None:
    for name, text in PYSPARK_3.items():
        (without_pyspark / name).parent.mkdir(exist_ok=True)
        (without_pyspark / name).write_text(text)
    found = ran(without_pyspark, "export", golden("5.5.0-clean-basic"), "--to", tmp_path / "out")
    assert_one_line(found, "pyspark 3.5.1 is too old, 4.0 or newer is needed")
    assert not (tmp_path / "out").exists()


def test_without_java(golden: Unpacked, tmp_path: Path) -> None:
    packages = Path(sysconfig.get_path("purelib"))
    found = ran(packages, "stats", golden("5.5.0-clean-basic"), "--master", "local[1]", PATH=str(tmp_path))
    assert_one_line(found, "no java on the PATH and no JAVA_HOME: Spark needs Java 17 or newer")


def test_with_java_11(golden: Unpacked, tmp_path: Path) -> None:
    java = tmp_path / "bin" / "java"
    java.parent.mkdir()
    java.write_text(JAVA_11)
    java.chmod(0o755)
    packages = Path(sysconfig.get_path("purelib"))
    found = ran(packages, "stats", golden("5.5.0-clean-basic"), "--master", "local[1]", JAVA_HOME=str(tmp_path))
    assert_one_line(found, "is Java 11: Spark needs Java 17 or newer")


def test_a_python_that_starts_late_is_told() -> None:
    text = "[STREAM_FAILED] Query terminated with exception: Python worker failed to connect back. SQLSTATE: XXKST"
    assert told(text).startswith("Spark waits 10 s for a Python process")


@pytest.mark.spark
@pytest.mark.parametrize(
    ("log", "package"),
    [
        ("RuntimeException: [download failed: org.a#b;1.3.0!b.jar]\n", "org.a#b;1.3.0"),
        ("RuntimeException: [unresolved dependency: io.delta#delta;9: not found]\n", "io.delta#delta;9:"),
    ],
)
def test_a_package_that_cannot_be_downloaded_is_named(log: str, package: str) -> None:
    text = "[JAVA_GATEWAY_EXITED] Java gateway process exited before sending its port number."
    assert f"the package {package.rstrip(':')}: if" in told(text, log)
    assert told(text, "Exception: other").startswith("Spark: [JAVA_GATEWAY_EXITED]")


def test_a_master_that_is_none_is_told(golden: Unpacked, tmp_path: Path) -> None:
    packages = Path(sysconfig.get_path("purelib"))
    found = ran(packages, "stats", golden("5.5.0-clean-basic"), "--master", "nonsense", TMPDIR=str(tmp_path))
    assert_one_line(found, "Spark")
