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
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rmqtool.scan import compiled
from rmqtool.scan.checksum import checksum_function, crc32
from rmqtool.scan.kernels import code_cache
from rmqtool.scan.kernels.checksum_kernel import slicing_crc
from tests.scan.logs import log_bytes, numbered

PACKAGE = Path(compiled.__file__).parent.parent
COUNT = 50
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
reader = reader_for(1 << 40)
walk = Walk(whole_file(FileSource.open(Path(sys.argv[1])), 0, more_follows=False), reader)
rows = [row for batch in walk.batches() for row in batch.as_rows()]
found = {{"reader": type(reader).__name__, "package": rmqtool.__file__, "rows": len(rows)}}
found["bad"] = sum(row.verdict for row in rows)
if type(reader).__name__ == "CompiledReader":
    from rmqtool.scan import checksum, compiled
    function = compiled.load_kernel().walk_block.function
    found["crc"] = checksum.checksum_function().source
    found["kept"], found["types"] = function.stats.cache_hits.total(), len(function.signatures)
    found["told"] = len(told)
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
    assert (first["kept"], second["kept"]) == (0, 1)
    assert (first["types"], second["types"]) == (1, 1)
    assert (first["told"], second["told"]) == (1, 0), "a person is told once that it compiles"
    cache = home / ".cache/rmqtool"
    (folder,) = cache.iterdir()
    for kept in folder.glob("*/*.walk_block-*.nbc"):
        kept.write_bytes(kept.read_bytes()[:1000])
    third, fourth = (_run(log, installed, home) for _ in range(2))
    assert (third["kept"], third["told"]) == (0, 1), "what is broken is compiled again"
    assert (fourth["kept"], fourth["told"]) == (0, 1), "and kept, once it is gone"
    assert _run(log, installed, home)["kept"] == 1
    constants = installed / "rmqtool/formats/commitlog.py"
    constants.write_text(constants.read_text("utf-8") + "# changed\n", "utf-8")
    assert _run(log, installed, home)["kept"] == 0, "code of another source is not run"
    (newer,) = cache.iterdir()
    assert newer != folder


def test_where_nothing_can_be_kept_each_run_compiles(log: Path, installed: Path) -> None:
    for _ in range(2):
        found = _run(log, installed, Path("/dev/null/home"))
        assert (found["reader"], found["kept"], found["told"]) == ("CompiledReader", 0, 1)


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
    assert (found["reader"], found["kept"]) == ("CompiledReader", 0)


def test_without_isal_the_checksum_of_zlib_serves(log: Path) -> None:
    absent = "sys.modules['isal'] = sys.modules['isal.isal_zlib'] = None"
    found = _run(log, PACKAGE.parent, log.parent, absent)
    assert (found["reader"], found["crc"]) == ("CompiledReader", "zlib:crc32")


def test_without_any_library_the_checksum_is_our_own(log: Path) -> None:
    candidates = (("zlib", "none"), ("none", "crc32"))
    absent = f"from rmqtool.scan import checksum\nchecksum._EXPORTED = {candidates}"
    found = _run(log, PACKAGE.parent, log.parent, absent)
    assert (found["reader"], found["crc"]) == ("CompiledReader", "own")


@pytest.fixture
def places(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[tuple[Path, Path]]:
    """Where code may be kept: beside the package, and for the user."""
    monkeypatch.setattr(code_cache, "__file__", str(tmp_path / "kernels/code_cache.py"))
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.setattr(Path, "home", lambda: tmp_path / "home")
    code_cache.code_folder.cache_clear()
    yield tmp_path / "kernels/__pycache__", tmp_path / "home/.cache/rmqtool"
    code_cache.code_folder.cache_clear()


def chosen() -> Path | None:
    code_cache.code_folder.cache_clear()
    folder = code_cache.code_folder()
    return None if folder is None else folder.parent


def test_a_host_that_forgot_its_users_has_no_home(places: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch) -> None:
    def no_home() -> Path:
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.setattr(Path, "home", no_home)
    assert chosen() == places[0]
    places[0].chmod(0o777)
    assert chosen() is None


def test_code_is_never_loaded_from_a_folder_that_others_may_change(
    places: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    shared, own = places
    assert chosen() == shared
    shared.chmod(0o777)
    assert chosen() == own
    own.parent.parent.chmod(0o777)  # whoever can rename it can put another one in its place
    assert chosen() is None
    own.parent.parent.chmod(0o1777)
    assert chosen() == own
    own.chmod(0o770)
    assert chosen() is None
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    assert chosen() == tmp_path / "cache/rmqtool"


def test_code_of_other_versions_goes(places: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch) -> None:
    chosen()
    (before,) = places[0].iterdir()
    monkeypatch.setattr(code_cache, "_source_digest", lambda: "another")
    chosen()
    assert [path.name for path in places[0].iterdir()] == ["kernels-another"] != [before.name]


def test_every_kernel_is_compiled_by_one_option(installed: Path, tmp_path: Path) -> None:
    declared = sum(path.read_text("utf-8").count("\n@kernel(") for path in PACKAGE.rglob("*.py"))
    environment = os.environ | {"PYTHONPATH": str(installed), "HOME": str(tmp_path), "PYTHONDONTWRITEBYTECODE": "1"}
    environment.pop("XDG_CACHE_HOME", None)
    subprocess.run([sys.executable, "-m", "rmqtool", "--compile"], env=environment, check=True, cwd=tmp_path)
    assert len(list((tmp_path / ".cache/rmqtool").glob("*/*/*.nbi"))) == declared > 10


@given(raw=st.binary(max_size=300), at=st.integers(0, 300))
def test_all_checksum_functions_are_equal(raw: bytes, at: int) -> None:
    expected = zlib.crc32(raw)
    assert crc32(raw) == expected
    for address in (checksum_function().address, slicing_crc.address):
        function = ctypes.CFUNCTYPE(ctypes.c_uint64, ctypes.c_uint64, ctypes.c_char_p, ctypes.c_uint64)(address)
        first = function(0, raw[:at], len(raw[:at])) & 0xFFFFFFFF
        assert function(first, raw[at:], len(raw[at:])) & 0xFFFFFFFF == expected
