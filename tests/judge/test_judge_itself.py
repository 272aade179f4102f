"""The judge's own hands: a fault changes something, and what a person moved is put back where undo expects it."""

import random
import shutil
import signal
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from rmqtool.fixtures.recipe import make_store
from rmqtool.fixtures.recipes import RECIPES
from rmqtool.formats.rocksdb.queue import unit_key
from tests.commands.transcripts import rmqtool
from tests.judge.case import _last
from tests.judge.check_append import _clear_blanks, _start_unlinks
from tests.judge.check_forecast import before_vanishing_units
from tests.judge.check_repair import _set_aside, check_undo, repair_count
from tests.judge.check_verify import is_clash, is_dropped, names_file, overwritten_index_files
from tests.judge.faults_derived import old_file
from tests.judge.target import BLANK_MAGIC, Fault, Target
from tests.judge.tool import rmqtool as limited_rmqtool
from tests.rocksdb_cases import numbers, write_rows
from tests.store_state import store_state

LARGE = (1 << 22) + 20


@pytest.mark.parametrize("seed", range(8))
def test_a_large_file_that_is_as_it_was_is_no_fault(tmp_path: Path, seed: int) -> None:
    for folder in ("store", "early"):
        file = tmp_path / folder / "consumequeue" / "T" / "0" / f"{0:020d}"
        file.parent.mkdir(parents=True)
        with file.open("wb") as sink:
            sink.write(b"\1" * 20)
            sink.truncate(LARGE)
    base: Any = SimpleNamespace(early=tmp_path / "early", plan=SimpleNamespace(has_database=False))
    fault = old_file(Target(base, SimpleNamespace(), tmp_path / "store", random.Random(seed)))  # type: ignore[arg-type]
    assert fault is None or fault.name == "consumequeue.old directory"


def test_a_field_that_an_earlier_fault_put_before_the_file_is_not_changed(tmp_path: Path) -> None:
    (tmp_path / "log").write_bytes(b"12345678")
    target = Target(SimpleNamespace(), SimpleNamespace(), tmp_path, random.Random(1))  # type: ignore[arg-type]
    assert target.change_number(tmp_path / "log", -4, 4) is None
    assert target.change_number(tmp_path / "log", 4, 4) is not None


def test_what_a_person_moved_between_two_repairs_is_back_for_the_undo_of_the_first(tmp_path: Path) -> None:
    path = tmp_path / "repaired"
    make_store(RECIPES["basic"], path, "4.9.7")
    shutil.rmtree(path / "index")
    (path / "checkpoint").unlink()
    (path / "consumequeue" / "orders" / "0" / "notes.txt").write_bytes(b"hello\n")
    before = store_state(path)
    disagreements: list[tuple[str, object]] = []
    case: Any = SimpleNamespace(
        aside=[], folder=tmp_path, made=set(), differs=lambda name, text: disagreements.append((name, text))
    )
    options = ("--yes", "--broker-version", "4.9.7", "--index-slots", 100, "--index-entries", 200)
    assert rmqtool("rebuild", path, "--index", *options).code in (0, 3)
    _set_aside(case, path, {"consumequeue/orders/0/notes.txt": None})
    assert rmqtool("rebuild", path, "--checkpoint", *options).code in (0, 3)
    assert repair_count(path) == 2
    check_undo(case, path, before)
    assert disagreements == []


def test_an_empty_file_that_gives_way_is_back_for_the_undo(tmp_path: Path) -> None:
    path = tmp_path / "repaired"
    make_store(RECIPES["basic"], path, "4.9.7")
    (log, *_) = sorted((path / "commitlog").iterdir())
    wrong = log.rename(log.with_name(f"{7:020d}"))
    log.touch()
    before = store_state(path)
    disagreements: list[tuple[str, object]] = []
    case: Any = SimpleNamespace(
        aside=[], folder=tmp_path, made=set(), differs=lambda name, text: disagreements.append((name, text))
    )
    _set_aside(case, path, {f"commitlog/{wrong.name}": f"commitlog/{log.name}"})
    assert log.stat().st_size
    check_undo(case, path, before)
    assert disagreements == []


@pytest.mark.parametrize(("file", "expected"), [("0" * 20, True), (f"{400:020d}", False)])
def test_an_extension_file_before_the_first_address_is_what_a_start_unlinks(
    tmp_path: Path, file: str, expected: bool
) -> None:
    """The log begins at 1000: the queue's first unit in it has the address 400 in the extension."""
    (tmp_path / "commitlog").mkdir()
    (tmp_path / "commitlog" / f"{1000:020d}").touch()
    units = [(500, 20), (1000, 400)]
    for name, content in {
        "consumequeue": b"".join(
            at.to_bytes(8, "big") + bytes(4) + (address - (1 << 63)).to_bytes(8, "big", signed=True)
            for at, address in units
        ),
        "consumequeue_ext": bytes(400),
    }.items():
        (tmp_path / name / "T" / "0").mkdir(parents=True)
        (tmp_path / name / "T" / "0" / file).write_bytes(content)
    difference = f"consumequeue_ext/T/0/{file}: only in ours"
    assert _start_unlinks(tmp_path, difference, ("commitlog",)) is expected
    assert not _start_unlinks(tmp_path, difference.replace("ours", "the real store"), ("commitlog",))


def test_an_index_file_is_overwritten_where_records_before_it_are_in_no_other(tmp_path: Path) -> None:
    for name, first, last in (("20260101000000000", 0, 500), ("20260101000000001", 500, 900)):
        (tmp_path / name).write_bytes(bytes(16) + first.to_bytes(8, "big") + last.to_bytes(8, "big") + bytes(8))
    records = list(range(0, 1000, 100))
    assert overwritten_index_files(tmp_path, records, 2) == {}
    (tmp_path / "20260101000000000").unlink()
    assert overwritten_index_files(tmp_path, records, 2) == {"index/20260101000000001": range(500)}


@pytest.mark.parametrize("known", [0, 500, 501])
def test_an_index_file_is_overwritten_where_its_first_entry_leads_after_its_last_record(
    tmp_path: Path, known: int
) -> None:
    header = bytes(16) + (0).to_bytes(8, "big") + (500).to_bytes(8, "big") + bytes(8)
    (tmp_path / "20260101000000000").write_bytes(header + bytes(8 + 20 + 4) + known.to_bytes(8, "big") + bytes(8))
    assert bool(overwritten_index_files(tmp_path, [0, 500, 600], 2)) is (known > 500)


@pytest.mark.parametrize(
    ("physical_offset", "count", "expected"), [(0, 119, True), (0, 238, True), (0, 118, False), (500, 119, False)]
)
def test_only_the_keys_of_whole_overwritten_files_may_be_missing(
    physical_offset: int, count: int, expected: bool
) -> None:
    row = {"id": "index.missing-key", "file": "index", "physical_offset": physical_offset, "count": count}
    assert is_clash(row, {"index/20260101000000001": range(500)}, 119) is expected
    assert not is_clash(row, {}, 119)


def test_keys_that_a_start_after_a_kill_leaves_out_are_those_before_a_later_file_of_the_log() -> None:
    row = {
        "id": "index.missing-key",
        "message": "3 keys from physical offset 0 are not there, up to physical offset 900",
    }
    assert is_dropped(row, 1024, 1024)
    assert is_dropped(row, 1500, 1024)  # the first record there has no key
    assert not is_dropped(row, 1000, 1024)
    assert not is_dropped(row, 0, 1024)
    assert not is_dropped(row | {"message": "up to physical offset 1024"}, 1500, 1024)
    assert not is_dropped(row | {"id": "index.wrong-slot"}, 1024, 1024)


@pytest.mark.parametrize("name", ["commitlog.stale-tail", "commitlog.missing-end-blank"])
def test_a_tail_names_the_units_of_its_own_queue_only(name: str) -> None:
    row = {"id": name, "file": "commitlog/0", "severity": "warning", "message": ""}
    row["message"] = "records of an older log; the queues know of T/1 at queue offset 21"
    assert names_file(row, "consumequeue", "consumequeue/T/1/00000000000000000400")
    assert not names_file(row, "consumequeue", "consumequeue/T/11/00000000000000000400")
    assert not names_file(row, "index", "index/20261123062718474")


def test_a_command_without_an_end_is_one_that_broke_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tests.judge.tool.SECONDS_MAX", 0.01)
    monkeypatch.setattr("tests.judge.tool.run", lambda _arguments: signal.pause())
    answer = limited_rmqtool("verify", "store")
    assert (answer.code, answer.trouble) == (1, "error: no end in N.N s")


def test_a_fault_whose_file_is_as_before_is_silent(tmp_path: Path) -> None:
    file = "consumequeue/T/0/00000000000000000000"
    for folder in ("base", "store"):
        (tmp_path / folder / file).parent.mkdir(parents=True)
        (tmp_path / folder / file).write_bytes(b"12345")
    fault = Fault("consumequeue.units zeroed", "consumequeue", file, "")
    assert _last(fault, tmp_path / "store", tmp_path / "base", [fault]).silent
    (tmp_path / "store" / file).write_bytes(b"12346")
    assert not _last(fault, tmp_path / "store", tmp_path / "base", [fault]).silent


@pytest.mark.parametrize(
    ("name", "is_silent"),
    [("log.cut", True), ("log.longer", True), ("log.record noise", True), ("log.file last missing", False)],
)
def test_a_change_of_a_log_file_that_a_later_fault_took_away_is_silent(
    tmp_path: Path, name: str, is_silent: bool
) -> None:
    (tmp_path / "base/commitlog").mkdir(parents=True)
    (tmp_path / "base/commitlog/0").write_bytes(b"12345")
    fault = Fault(name, "commitlog", "commitlog/0", "")
    gone = Fault("log.file last missing", "commitlog", "commitlog/0", "")
    assert _last(fault, tmp_path / "store", tmp_path / "base", [fault, gone]).silent is is_silent


def test_what_a_blank_holds_is_cleared_also_in_a_file_with_another_s_name(tmp_path: Path) -> None:
    size, end = 1000, 900
    blank = (size - end).to_bytes(4, "big") + BLANK_MAGIC.to_bytes(4, "big")
    log = tmp_path / "commitlog" / f"{size:020d}"  # its base name was all zeros
    log.parent.mkdir()
    log.write_bytes(b"\1" * end + blank + b"\2" * (size - end - len(blank)))
    plan = SimpleNamespace(log_directories=("commitlog",), log_file_size=size)
    case: Any = SimpleNamespace(truth=SimpleNamespace(sizes={0: end}), base=SimpleNamespace(plan=plan))
    _clear_blanks(case, tmp_path, [])
    assert log.read_bytes() == b"\1" * end + blank + bytes(size - end - len(blank))


def test_a_record_before_a_unit_that_leads_before_the_log_may_be_lost(tmp_path: Path) -> None:
    places = {0: 100, 1: 200, 2: -1, 3: 400, 4: 500}
    rows = {unit_key(b"T", 0, at): numbers(place) + bytes(20) for at, place in places.items()}
    write_rows(tmp_path / "store" / "consumequeue", {"default": rows, "offset": {}})
    served = {("T", 0, at): place if place >= 0 else 300 for at, place in places.items()}

    def records(version: str, log_minimum: int) -> set[int]:
        base, truth = SimpleNamespace(plan=SimpleNamespace(has_database=True)), SimpleNamespace(served=served)
        case: Any = SimpleNamespace(base=base, truth=truth, version=version, store=tmp_path / "store", folder=tmp_path)
        return before_vanishing_units(case, log_minimum)

    assert records("5.5.0", 0) == {200}
    assert records("5.5.1", 201) == {100, 200}
    assert records("5.4.0", 0) == set()
