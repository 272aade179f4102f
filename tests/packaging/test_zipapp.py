"""One file for hosts without internet: starts in a root with only a Python, and does what an installed rmqtool does."""

from __future__ import annotations

import json
import os
import platform
import shutil
import subprocess
import sys
import zipfile
from importlib.metadata import Distribution
from pathlib import Path

import pytest

import rmqtool
from tests.conftest import Unpacked
from tests.packaging.bare_root import is_possible, run_bare
from tests.packaging.conftest import Built
from tests.packaging.environments import ROOT, needed, run

CRASHED, DAMAGED = "5.5.0-crashed", "5.5.0-damage-zero-hole-abort"
HERE = f"3.{sys.version_info[1]}-{platform.machine()}"
TMP = "/tmp"  # noqa: S108 - of a root of its own
VERSIONS = ("3.11", "3.12", "3.13")
bare = pytest.mark.skipif(not is_possible(), reason="unshare cannot make a root of its own here")


def writer() -> dict[str, object]:
    """The names of `packaging/write_zipapp.py`."""
    import runpy

    return runpy.run_path(str(ROOT / "packaging/write_zipapp.py"))


def wheel_of(installed: Distribution, folder: Path) -> Path:
    """An installed distribution as a wheel again, so that no index is asked."""
    name = f"{installed.metadata['Name'].replace('-', '_')}-{installed.version}-py3-none-any.whl"
    with zipfile.ZipFile(folder / name, "w") as packed:
        for path in installed.files or []:
            if path.parts[0] != ".." and path.suffix != ".pyc":
                packed.write(str(path.locate()), str(path))
    return folder / name


@pytest.fixture(scope="module")
def wheels(built: Built, tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """The wheel of rmqtool, and what a slim install has."""
    import tomllib

    folder = tmp_path_factory.mktemp("wheels")
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    return [built.wheel, *(wheel_of(each, folder) for each in needed(project["dependencies"]).values())]


@pytest.fixture(scope="module")
def file(wheels: list[Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The file, for the Python of the suite only."""
    output = tmp_path_factory.mktemp("zipapp") / "rmqtool.pyz"
    writer()["pack"]({HERE: wheels}, output)  # type: ignore[operator]
    return output


def with_contents(file: Path, folder: Path, **changes: object) -> Path:
    """The file with other contents, and no wheels."""
    copy = folder / "changed.pyz"
    with zipfile.ZipFile(file) as old, zipfile.ZipFile(copy, "w") as new:
        for name in ("__main__.py", "unpack.py"):
            new.writestr(name, old.read(name))
        new.writestr("contents.json", json.dumps(json.loads(old.read("contents.json")) | changes))
    return copy


@bare
@pytest.mark.parametrize("command", [["--version"], ["verify", "/store"], ["forecast", "/store"]], ids=lambda c: c[0])
def test_it_runs_with_a_python_and_nothing_else(
    file: Path, slim: Path, golden: Unpacked, tmp_path: Path, command: list[str]
) -> None:
    """No network, no home, and only `/tmp` can be written; where it lies does not change what it prints."""
    store = golden(DAMAGED)
    ran = run_bare(tmp_path, file, store, command, writable=TMP)
    installed = run([slim / "rmqtool", *(str(store) if word == "/store" else word for word in command)], tmp_path)
    assert (ran.returncode, ran.stderr) == (installed.returncode, installed.stderr)
    assert ran.stdout.split() == installed.stdout.replace(str(store), "/store").split()
    assert ran.stdout


@bare
def test_without_a_place_to_unpack_it_says_how_to_name_one(file: Path, golden: Unpacked, tmp_path: Path) -> None:
    ran = run_bare(tmp_path, file, golden(CRASHED), ["--version"], HOME="/root")
    assert (ran.returncode, ran.stdout) == (4, "")
    assert ran.stderr.startswith("rmqtool: no directory to unpack into, with room for ")
    assert "/root/.cache/rmqtool-zipapp: Read-only file system" in ran.stderr
    assert "RMQTOOL_UNPACK=DIRECTORY" in ran.stderr


def test_it_unpacks_once_for_later_runs(file: Path, tmp_path: Path) -> None:
    for _ in range(2):
        ran = run([sys.executable, file, "--version"], tmp_path)
        assert (ran.returncode, ran.stdout, ran.stderr) == (0, f"rmqtool {rmqtool.__version__}\n", "")
        (folder,) = (tmp_path / ".cache/rmqtool-zipapp").iterdir()
        assert folder.name.endswith(f"-{os.geteuid()}")  # in a directory of several users each has an own one
        assert folder.stat().st_mode & 0o77 == 0
        (folder / "rmqtool/__init__.py").write_text(f'__version__ = "{rmqtool.__version__}"\n# kept\n')
    assert "# kept" in (folder / "rmqtool/__init__.py").read_text()


def test_without_a_home_it_unpacks_for_one_run(file: Path, tmp_path: Path) -> None:
    ran = run([sys.executable, file, "--version"], tmp_path, HOME="/dev/null", TMPDIR=str(tmp_path))
    assert (ran.returncode, ran.stdout, ran.stderr) == (0, f"rmqtool {rmqtool.__version__}\n", "")
    assert list(tmp_path.iterdir()) == []


def test_code_that_another_user_could_write_is_not_run(file: Path, tmp_path: Path) -> None:
    assert run([sys.executable, file, "--version"], tmp_path).returncode == 0
    (folder,) = (tmp_path / ".cache/rmqtool-zipapp").iterdir()
    (folder / "rmqtool/__init__.py").write_text('__version__ = "of somebody else"\n')
    folder.chmod(0o777)
    ran = run([sys.executable, file, "--version"], tmp_path)
    assert "of somebody else" not in ran.stdout
    folder.parent.chmod(0o777)
    named = run([sys.executable, file, "--version"], tmp_path, RMQTOOL_UNPACK=str(folder.parent))
    assert (named.returncode, named.stdout) == (4, "")
    assert f"{folder.parent}: another user may write to it" in named.stderr


def test_what_the_host_has_installed_is_left_alone(file: Path, golden: Unpacked, tmp_path: Path) -> None:
    (tmp_path / "numpy.py").write_text("raise SystemError('the numpy of the host')\n")
    ran = run([sys.executable, file, "verify", golden(CRASHED)], tmp_path, PYTHONPATH=str(tmp_path))
    assert (ran.returncode, ran.stderr) == (3, "")


def test_another_python_on_the_path_is_used(file: Path, tmp_path: Path) -> None:
    changed = with_contents(file, tmp_path, targets={f"3.99-{platform.machine()}": []})
    other = tmp_path / "python3.99"
    other.write_text('#!/bin/sh\necho "started: $2 $3"\n')
    other.chmod(0o755)
    ran = run([sys.executable, changed, "info", "STORE"], tmp_path, PATH=str(tmp_path))
    assert (ran.returncode, ran.stdout, ran.stderr) == (0, "started: info STORE\n", "")


def test_a_python_without_wheels_is_told_what_the_file_has(file: Path, tmp_path: Path) -> None:
    changed = with_contents(file, tmp_path, targets={"3.98-riscv64": [], "3.99-riscv64": []})
    (tmp_path / "python3.99").symlink_to(sys.executable)  # so called, but the same one again
    ran = run([sys.executable, changed, "info", "STORE"], tmp_path, PATH=f"{tmp_path}:/usr/bin:/bin")
    assert (ran.returncode, ran.stdout) == (4, "")
    assert ran.stderr.startswith("rmqtool: this file runs on CPython 3.98, 3.99 on riscv64; this is cpython 3.")
    assert ran.stderr.count("\n") == 1


def test_a_wheel_that_pip_left_out_is_missed(wheels: list[Path]) -> None:
    missing = writer()["missing"]
    assert missing(wheels, HERE, "") == set()  # type: ignore[operator]
    fewer = [path for path in wheels if not path.name.startswith(("numpy", "markupsafe", "MarkupSafe"))]
    names = {name.split(">")[0].lower() for name in missing(fewer, HERE, "")}  # type: ignore[operator]
    assert {name.split("<")[0] for name in names} == {"numpy", "markupsafe"}


@pytest.fixture(scope="module")
def whole(built: Built, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The file for every Python and processor, its wheels from the package index."""
    output = tmp_path_factory.mktemp("zipapp") / "rmqtool.pyz"
    script = str(ROOT / "packaging/write_zipapp.py")
    ran = subprocess.run([sys.executable, script, built.wheel, output], capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    return output


@pytest.mark.slow
@bare
@pytest.mark.parametrize("version", VERSIONS)
def test_it_runs_on_every_python_it_has_wheels_for(
    whole: Path, slim: Path, golden: Unpacked, tmp_path: Path, version: str
) -> None:
    pythons = Path(sys.base_prefix).parent.glob(f"{version}.*/bin/python{version}")  # as pyenv and uv lay them
    python = next(map(str, pythons), None) or shutil.which(f"python{version}", path="/usr/bin:/usr/local/bin")
    if python is None:
        pytest.skip(f"no CPython {version} here")
    store = golden(DAMAGED)
    for command in ("verify", "forecast"):
        ran = run_bare(tmp_path, whole, store, [command, "/store"], python=python, writable=TMP)
        installed = run([slim / "rmqtool", command, store], tmp_path)
        assert (ran.returncode, ran.stderr) == (3, "")
        assert ran.stdout.split() == installed.stdout.replace(str(store), "/store").split()


@pytest.mark.slow
def test_it_has_compiled_wheels_for_every_python_and_processor(whole: Path) -> None:
    with zipfile.ZipFile(whole) as packed:
        targets = json.loads(packed.read("contents.json"))["targets"]
    assert set(targets) == {f"{version}-{machine}" for version in VERSIONS for machine in ("x86_64", "aarch64")}
    for target, names in targets.items():
        version, _, machine = target.partition("-")
        compiled = [name for name in names if not name.endswith("-none-any.whl")]
        assert {name.split("/")[1].split("-")[0] for name in compiled} >= {
            "numpy",
            "isal",
            "lz4",
            "zstandard",
            "msgspec",
        }
        for name in compiled:
            assert f"-cp{version.replace('.', '')}-" in name or "-abi3-" in name, name
            assert name.endswith(f"_{machine}.whl"), name
