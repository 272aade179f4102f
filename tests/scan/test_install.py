"""The compiled reader wherever it is put: read-only, without a home, in a zip; where it cannot be, the plain one."""

from __future__ import annotations

import ctypes
import json
import os
import shutil
import subprocess
import sys
import zipfile
import zlib
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rmqtool.scan import compiled
from rmqtool.scan.checksum import crc32
from rmqtool.scan.kernels import code_folder, crc_symbol
from rmqtool.scan.kernels.machine_code import MachineCode
from tests.scan.logs import log_bytes, numbered

PACKAGE = Path(compiled.__file__).parent.parent
COUNT = 50
KERNEL = "rmqtool.scan.kernels.kernel"
CODE = MachineCode(calls_crc=True, results="q", is_tuple=False, content=b"code\n")
SCRIPT = """
import json, sys
{before}
from rmqtool.scan.kernels.compile_notice import ON_COMPILE
told = []
ON_COMPILE.append(lambda: told.append(True))
from pathlib import Path
import rmqtool
from rmqtool.scan.log import reader_for
from rmqtool.scan.split import whole_file
from rmqtool.scan.walk import Walk
from rmqtool.store.source import FileSource
make = reader_for(1 << 40)
walk = Walk(whole_file(FileSource.open(Path(sys.argv[1])), 0, more_follows=False), make())
rows = [row for batch in walk.batches() for row in batch.as_rows()]
found = {{"reader": make.__name__, "package": rmqtool.__file__, "rows": len(rows)}}
found["bad"] = sum(row.verdict for row in rows)
if make.__name__ == "CompiledReader":
    from rmqtool.scan import compiled
    from rmqtool.scan.kernels import crc_symbol
    kernel = compiled.load_kernel()
    found["crc"] = crc_symbol.crc_function().source
    found["compiled"] = kernel.walk_block.compiled
    found["told"] = len(told)
    found["numba"] = "numba" in sys.modules
print(json.dumps(found))
"""


@pytest.fixture
def log(tmp_path: Path) -> Path:
    path = tmp_path / "log"
    path.write_bytes(log_bytes(numbered(COUNT)).content)
    return path


@pytest.fixture
def installed(tmp_path: Path) -> Path:
    """A copy of the package that cannot keep compiled code beside itself, whoever runs it."""
    folder = tmp_path / "installed"
    shutil.copytree(PACKAGE, folder / "rmqtool", ignore=shutil.ignore_patterns("__pycache__"))
    (folder / "rmqtool/scan/kernels/__pycache__").touch()
    return folder


def _run(log: Path, path: Path, home: Path, before: str = "") -> dict[str, Any]:
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("NUMBA", "XDG", "PYTHON"))}
    environment |= {"PYTHONPATH": str(path), "HOME": str(home), "PYTHONDONTWRITEBYTECODE": "1"}
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT.format(before=before), str(log)],
        env=environment,
        cwd=log.parent,
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    found: dict[str, Any] = json.loads(done.stdout)
    assert found["package"].startswith(str(path))
    assert (found["rows"], found["bad"]) == (COUNT + 1, 0)
    return found


def test_a_read_only_install_keeps_its_code_in_the_users_cache(log: Path, installed: Path, tmp_path: Path) -> None:
    home = tmp_path / "home"
    first, second = (_run(log, installed, home) for _ in range(2))
    assert first["reader"] == second["reader"] == "CompiledReader"
    (kept,) = (home / ".cache/rmqtool").glob("kernel.*.walk_block.*")
    assert (first["compiled"], second["compiled"]) == (1, 0)
    assert (first["told"], second["told"]) == (1, 0), "a person is told once that it compiles"
    assert (first["numba"], second["numba"]) == (True, False), "kept code loads without what only compiling needs"
    content = bytearray(kept.read_bytes())
    content[-1] ^= 1
    kept.write_bytes(content)
    third = _run(log, installed, home)
    assert third["compiled"] == 1, "what is not what was written is not run"
    kernel = installed / "rmqtool/scan/kernels/kernel.py"
    kernel.write_text(kernel.read_text("utf-8") + "# changed\n", "utf-8")
    fourth = _run(log, installed, home)
    assert fourth["compiled"] == 1, "code of another source is not run"
    (newer,) = (home / ".cache/rmqtool").glob("kernel.*.walk_block.*")
    assert newer != kept


def test_where_nothing_can_be_kept_each_run_compiles(log: Path, installed: Path) -> None:
    found = _run(log, installed, Path("/dev/null/home"))
    assert (found["reader"], found["compiled"], found["told"]) == ("CompiledReader", 1, 1)


@pytest.mark.parametrize("name", ["numba", "numpy", "llvmlite"])
def test_without_a_compiler_the_plain_reader_serves(log: Path, name: str) -> None:
    absent = f"sys.modules[{name!r}] = None"
    assert _run(log, PACKAGE.parent, log.parent, absent)["reader"] == "PlainReader"


def test_a_package_in_a_zip_compiles_its_code(log: Path, tmp_path: Path) -> None:
    archive = tmp_path / "rmqtool.zip"
    with zipfile.ZipFile(archive, "w") as packed:
        for path in PACKAGE.rglob("*.py"):
            packed.write(path, path.relative_to(PACKAGE.parent))
    found = _run(log, archive, Path("/dev/null/home"))
    assert (found["reader"], found["compiled"]) == ("CompiledReader", 1)


def test_without_isal_the_checksum_of_zlib_serves(log: Path) -> None:
    absent = "sys.modules['isal'] = sys.modules['isal.isal_zlib'] = None"
    found = _run(log, PACKAGE.parent, log.parent, absent)
    assert (found["reader"], found["crc"]) == ("CompiledReader", "zlib:crc32")


def test_without_any_library_the_checksum_is_our_own(log: Path) -> None:
    candidates = (("zlib", "none"), ("none", "crc32"))
    absent = f"from rmqtool.scan.kernels import crc_symbol\ncrc_symbol._CANDIDATES = {candidates}"
    found = _run(log, PACKAGE.parent, log.parent, absent)
    assert (found["reader"], found["crc"]) == ("CompiledReader", "own")


def test_a_host_that_forgot_its_users_has_no_home(monkeypatch: pytest.MonkeyPatch) -> None:
    def no_home() -> Path:
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.setattr(Path, "home", no_home)
    folder = code_folder.writable_folder()
    assert folder is not None
    assert folder.is_dir()


def test_code_is_never_loaded_from_a_folder_that_others_may_write_to(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    shared = tmp_path / "kernels/__pycache__"
    shared.mkdir(parents=True)
    monkeypatch.setattr(code_folder, "__file__", str(tmp_path / "kernels/code_folder.py"))
    monkeypatch.setattr(Path, "home", lambda: tmp_path / "home")
    assert code_folder.writable_folder() == shared
    kept = code_folder.CodeFolder(KERNEL)
    kept.keep("walk_block", (), CODE)
    assert kept.load("walk_block", ()) == CODE
    assert code_folder.CodeFolder(KERNEL).is_filled
    shared.chmod(0o777)
    own = tmp_path / "home/.cache/rmqtool"
    assert code_folder.writable_folder() == own
    assert not code_folder.CodeFolder(KERNEL).is_filled
    own.chmod(0o770)
    assert code_folder.writable_folder() is None


@given(raw=st.binary(max_size=300), at=st.integers(0, 300))
def test_all_checksum_functions_are_equal(raw: bytes, at: int) -> None:
    expected = zlib.crc32(raw)
    assert crc32(raw) == expected
    library = crc_symbol.library_function()
    assert library is not None
    for found in (library, OWN):
        function = ctypes.CFUNCTYPE(ctypes.c_uint64, ctypes.c_uint64, ctypes.c_char_p, ctypes.c_uint64)(found.address)
        first = function(0, raw[:at], len(raw[:at])) & 0xFFFFFFFF
        assert function(first, raw[at:], len(raw[at:])) & 0xFFFFFFFF == expected


OWN = crc_symbol.own_function()
