"""What the judge expects nobody to miss: units of which no intact record tells, a log that ends early."""

import random
import shutil
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from rmqtool.fixtures.recipe import make_store
from rmqtool.fixtures.recipes import RECIPES
from tests.judge.bases import CLEAN, KILLED, KILLED_BEFORE_DISPATCH
from tests.judge.case import _together
from tests.judge.target import Fault, Target, record_fields
from tests.judge.unjudged import (
    directory_says_nothing,
    entries_say_nothing,
    extension_says_nothing,
    is_changed,
    is_early_end,
    log_before,
    log_now,
    says_nothing,
)  # fmt: skip

QUEUE = "consumequeue/T/0/00000000000000000000"


def unit(physical_offset: int) -> bytes:
    return physical_offset.to_bytes(8, "big") + (90).to_bytes(4, "big") + bytes(8)


UNITS = [unit(100), unit(200), unit(300)]
ZEROS = bytes(20)
WRONG_SIZE = UNITS[1][:8] + (91).to_bytes(4, "big") + bytes(8)


def _written(root: Path, units: list[bytes]) -> Path:
    file = root / QUEUE
    file.parent.mkdir(parents=True)
    file.write_bytes(b"".join(units).ljust(200, b"\0"))
    return root


@pytest.mark.parametrize(
    ("units", "intact", "expected"),
    [
        (UNITS, {100}, False),
        ([UNITS[0], ZEROS, ZEROS], {100}, True),
        ([UNITS[0], ZEROS, ZEROS], {100, 300}, False),
        ([UNITS[0], ZEROS, UNITS[2]], {100, 300}, False),
        ([UNITS[0], WRONG_SIZE, UNITS[2]], {100, 300}, True),
        ([UNITS[0], WRONG_SIZE, UNITS[2]], {100, 200}, False),
        ([UNITS[0], unit(201), UNITS[2]], {100, 300}, True),
        ([UNITS[0], unit(201), UNITS[2]], {100, 200, 300}, False),
        ([UNITS[0], unit(301), UNITS[2]], {100, 300}, False),
        ([UNITS[0], unit(150), UNITS[2]], {100, 300}, False),
        ([UNITS[0], unit(99), UNITS[2]], {300}, False),
    ],
)
def test_units_say_nothing_without_their_records(
    tmp_path: Path, units: list[bytes], intact: set[int], expected: bool
) -> None:
    base, store = _written(tmp_path / "base", UNITS), _written(tmp_path / "store", units)
    assert says_nothing(base, store, QUEUE, intact, dict.fromkeys(intact, 90)) is expected


@pytest.mark.parametrize(("place", "intact", "expected"), [
    (395, {100, 200, 300}, True), (490, {100, 200, 300}, True), (491, {100, 200, 300}, False),
    (395, {100, 200, 300, 400}, False), (250, {100, 200, 300}, False), (401, {100, 200, 400}, False),
])  # fmt: skip
def test_a_unit_that_points_to_lost_records_says_nothing(
    tmp_path: Path, place: int, intact: set[int], expected: bool
) -> None:
    """The record at 400 is another queue's, and its log ends at 490."""
    base, store = _written(tmp_path / "base", UNITS), _written(tmp_path / "store", [*UNITS, unit(place)])
    assert says_nothing(base, store, QUEUE, intact, dict.fromkeys((100, 200, 300, 400), 90)) is expected


@pytest.mark.parametrize(("intact", "expected"), [({100}, True), ({100, 300}, False), ({100, 200}, False)])
def test_queues_as_old_as_their_log_say_nothing(tmp_path: Path, intact: set[int], expected: bool) -> None:
    base, store = _written(tmp_path / "base", UNITS[:2]), _written(tmp_path / "store", [UNITS[0]])
    later = (base / QUEUE).with_name(f"{200:020d}")
    later.write_bytes(UNITS[2].ljust(200, b"\0"))
    (base / "index").write_bytes(b"")
    sizes = dict.fromkeys((100, 200, 300), 90)
    assert directory_says_nothing(base, store, "consumequeue", intact, sizes) is expected
    later.rename((store / QUEUE).with_name("other"))
    assert not directory_says_nothing(base, store, "consumequeue", intact, sizes)


@pytest.mark.parametrize(("code", "expected"), [(7, True), (0, False)])
def test_a_tags_code_instead_of_its_address_says_nothing(tmp_path: Path, code: int, expected: bool) -> None:
    unit = UNITS[0][:12] + (-(1 << 63) + 420).to_bytes(8, "big", signed=True)
    base = _written(tmp_path / "base", [unit])
    extension = base / QUEUE.replace("consumequeue", "consumequeue_ext")
    extension.parent.mkdir(parents=True)
    extension.write_bytes(bytes(400))
    extension.with_name(f"{400:020d}").write_bytes(bytes(20) + (20).to_bytes(2, "big") + (7).to_bytes(8, "big"))
    store = _written(tmp_path / "store", [unit[:12] + code.to_bytes(8, "big")])
    assert says_nothing(base, store, QUEUE, {100}, {100: 90}) is expected


@pytest.fixture
def target(tmp_path: Path) -> Target:
    """A store as its own base, killed before its messages were dispatched."""
    path = tmp_path / "base"
    make_store(RECIPES["basic"], path, "5.3.1")
    log, *others = sorted((path / "commitlog").iterdir())
    for other in others:
        other.unlink()
    content, at, sizes = log.read_bytes(), 0, {}
    while content[at + 4 : at + 8] == b"\xda\xa3\x20\xa7":
        sizes[at] = int.from_bytes(content[at : at + 4], "big")
        at += sizes[at]
    plan = SimpleNamespace(
        features=(), log_file_size=len(content), log_directories=("commitlog",), runs=((9, KILLED_BEFORE_DISPATCH),)
    )
    shutil.copytree(path, tmp_path / "store")
    base: Any = SimpleNamespace(plan=plan, path=path)
    truth: Any = SimpleNamespace(sizes=sizes)
    return Target(base, truth, tmp_path / "store", random.Random(1))


def test_a_log_that_was_cut_inside_a_record_is_compared(target: Target) -> None:
    """A fault that changes a log of which an earlier fault left a part of a record."""
    (file,) = target.log_files()
    with file.open("r+b") as log:
        log.truncate(list(target.truth.sizes)[3] + 20)
    cut = log_now(target)
    assert is_changed(target, log_before(target), cut)
    target.write(file, 12, (77).to_bytes(4, "big"))
    assert is_changed(target, cut, log_now(target))


@pytest.mark.parametrize(("from_end", "expected"), [(21, True), (20, False), (12, False), (11, True), (1, True)])
def test_a_record_checksum_may_lose_its_name_unseen(target: Target, from_end: int, expected: bool) -> None:
    target.base.plan.features = ("crc",)
    (at, *_), sizes = target.truth.sizes, target.truth.sizes
    for file in (target.base.path / "commitlog" / f"{0:020d}", *target.log_files()):
        target.write(file, at + sizes[at] - 20, b"__CRC32#\x011234567890\x02")
    (file,), before = target.log_files(), log_now(target)
    target.write(file, at + sizes[at] - from_end, b"/")
    assert is_changed(target, before, log_now(target)) is expected


@pytest.mark.parametrize("is_end", [True, False])
def test_faults_that_together_leave_an_early_end_are_silent(target: Target, is_end: bool) -> None:
    """A record is overwritten, and then the file is as it was before that record: nothing else knows of it."""
    (file,) = target.log_files()
    at = list(target.truth.sizes)[3]
    target.write(file, at if is_end else at - 8, bytes(file.stat().st_size - at))
    faults = [Fault(name, "commitlog", target.relative(file), "") for name in ("log.record another", "log.old file")]
    assert [fault.silent for fault in _together(faults, target)] == [is_end, is_end]


@pytest.mark.parametrize("is_known", [True, False])
def test_a_last_record_that_is_in_no_queue_leaves_an_early_end(target: Target, is_known: bool) -> None:
    target.base.plan.runs = ((9, KILLED),)
    (file,) = target.log_files()
    *others, last = target.truth.sizes
    target.truth.served = {("T", 0, number): at for number, at in enumerate([*others, last] if is_known else others)}
    target.truth.keys = {("T", "key"): {others[0]}}
    before = log_now(target)
    target.write(file, last, bytes(file.stat().st_size - last))
    assert is_early_end(target, before, log_now(target)) is not is_known


@pytest.mark.parametrize("has_own_time", [True, False])
def test_after_a_clean_stop_the_checkpoint_has_the_time_of_the_last_record(target: Target, has_own_time: bool) -> None:
    target.base.plan.runs = ((9, CLEAN),)
    *_, in_front, last = target.truth.sizes
    for path in (target.base.path, target.path):
        file = path / target.relative(target.log_files()[0])
        content = bytearray(file.read_bytes())
        for number, at in enumerate((in_front, last)):
            position, width = record_fields(bytes(content[at:]))["store-time"]
            content[at + position : at + position + width] = (9 + number * has_own_time).to_bytes(width, "big")
        file.write_bytes(content)
    target.truth.served, target.truth.keys = {("T", 0, 0): in_front}, {}
    before = log_now(target)
    (file,) = target.log_files()
    target.write(file, last, bytes(file.stat().st_size - last))
    assert is_early_end(target, before, log_now(target)) is not has_own_time


@pytest.mark.parametrize(
    ("places", "intact", "expected"),
    [
        ([100, 201, 300], {300}, True),
        ([100, 201, 300], {100, 200, 300}, False),
        ([100, 301, 300], {300}, False),
        ([201, 200, 300], {300}, True),
        ([201, 200, 300], {150, 300}, False),
        ([100, 200, 300], {300}, False),
    ],
)
def test_entries_say_nothing_without_their_records(
    tmp_path: Path, places: list[int], intact: set[int], expected: bool
) -> None:
    files = []
    for name, offsets in (("base", [100, 200, 300]), ("store", places)):
        entries = (bytes(4) + at.to_bytes(8, "big") + bytes(8) for at in offsets)
        files.append(tmp_path / name)
        files[-1].write_bytes(bytes(36) + (3).to_bytes(4, "big") + bytes(4 * 5) + b"".join(entries) + bytes(40))
    assert entries_say_nothing(*files, intact, dict.fromkeys(intact, 90), 5) is expected


@pytest.mark.parametrize(("gone", "last", "expected"), [
    ((1,), b"", True), ((2,), b"x", True), ((1, 2), b"x", True), ((1,), b"x", False), ((0, 2), b"x", True),
    ((0, 1, 2), b"x", False),
])  # fmt: skip
def test_a_log_whose_last_files_are_gone_ends_early(
    target: Target, gone: tuple[int, ...], last: bytes, expected: bool
) -> None:
    """The log has three files and was killed before dispatch: nothing leads to the records of the later ones."""
    before = {0: [b"one"], 10: [b"two"], 20: [last + bytes(3)]}
    after = {start: content for start, content in before.items() if start // 10 not in gone}
    assert is_early_end(target, before, after) is expected


@pytest.mark.parametrize("time", [0, 1])
def test_a_log_that_is_gone_is_known_to_the_checkpoint_alone(target: Target, time: int) -> None:
    (target.base.path / "checkpoint").write_bytes(time.to_bytes(8, "big") + bytes(4088))
    assert is_early_end(target, {0: [b"one"]}, {}) is (time == 0)


@pytest.mark.parametrize(("intact", "expected"), [({90}, True), ({90, 200}, False)])
def test_the_only_file_of_a_queue_without_records_says_nothing(
    tmp_path: Path, intact: set[int], expected: bool
) -> None:
    base = _written(tmp_path / "base", UNITS)
    assert says_nothing(base, tmp_path / "store", QUEUE, intact, dict.fromkeys(intact, 90)) is expected


@pytest.mark.parametrize(("intact", "expected"), [({100}, True), ({100, 300}, False)])
def test_the_end_time_of_a_lost_record_says_nothing(tmp_path: Path, intact: set[int], expected: bool) -> None:
    files = []
    for name, end_ms in (("base", 9), ("store", 7)):
        head = b"".join(value.to_bytes(8, "big") for value in (5, end_ms, 100, 300)) + bytes(8)
        files.append(tmp_path / name)
        files[-1].write_bytes(head + bytes(4 * 5) + bytes(40))
    assert entries_say_nothing(*files, intact, dict.fromkeys(intact, 90), 5) is expected


@pytest.mark.parametrize(("address", "expected"), [(399, True), (400, False), (799, False), (800, True), (None, True)])
def test_a_file_of_an_extension_to_which_no_unit_leads_says_nothing(
    tmp_path: Path, address: int | None, expected: bool
) -> None:
    code = bytes(8) if address is None else (address - (1 << 63)).to_bytes(8, "big", signed=True)
    _written(tmp_path, [UNITS[0], UNITS[1][:12] + code])
    file = tmp_path / f"consumequeue_ext/T/0/{400:020d}"
    file.parent.mkdir(parents=True)
    file.write_bytes(bytes(400))
    assert extension_says_nothing(tmp_path, str(file.relative_to(tmp_path))) is expected
