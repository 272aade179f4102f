"""Files of the index that are written apart: each begins and ends where it would if one thread wrote them all."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from rmqtool.engine.append.message import Message
from rmqtool.engine.append.open_writer import new_store
from rmqtool.engine.append.writer_config import WriterConfig
from rmqtool.engine.dispatch import derived_writer
from rmqtool.engine.rules.versions import rules_for
from rmqtool.formats.commitlog import MAGIC_BLANK, SYS_FLAG_AT
from rmqtool.formats.consumequeue import UNIT, UNIT_SIZE
from rmqtool.formats.system_flag import TRANSACTION_ROLLBACK
from rmqtool.repair.derived import parallel
from rmqtool.repair.derived.build import build
from rmqtool.repair.derived.result import BuildRequest
from rmqtool.scan.runner import Runner
from rmqtool.store.directory import Settings, survey
from rmqtool.store.view import open_directory
from tests.repair.runners import PicklingRunner

VERSION = "5.5.0"
FILE_SIZE = 1 << 10
SLOTS, ENTRIES = 5, 8
BLANK_CODE = MAGIC_BLANK.to_bytes(4, "big", signed=True)
BEGAN_MS = 1_700_000_000_000
CONFIG = WriterConfig(
    commitlog_file_size=FILE_SIZE, consumequeue_file_size=200, index_slot_count=SLOTS, index_entry_count=ENTRIES
)
SETTINGS = Settings(
    commitlog_file_size=FILE_SIZE, consumequeue_file_size=200, index_slot_count=SLOTS, index_entry_count=ENTRIES
)


def write(root: Path, keys: Sequence[int]) -> None:
    """A store of messages with so many keys each; some share a millisecond."""
    with new_store(root, rules_for(VERSION), CONFIG, lambda: BEGAN_MS) as writer:
        for number, count in enumerate(keys):
            texts = " ".join(f"key-{number}-{which}" for which in range(count))
            writer.put(
                Message(
                    topic=f"Topic{number % 3}" if number else "Early",
                    body=b"body",
                    properties={"KEYS": texts} if count else {},
                    store_timestamp_ms=BEGAN_MS + number // 5,
                )
            )


def built(root: Path, directory: Path, runner: Runner | None = None, *, queues: bool = True) -> dict[str, bytes]:
    directory.mkdir()
    store = survey(open_directory(root), SETTINGS)
    wanted = BuildRequest(_all if queues else None, index=True)
    build(store, rules_for(VERSION), wanted, directory, runner=runner)
    return {str(found.relative_to(directory)): found.read_bytes() for found in directory.rglob("*") if found.is_file()}


def _all(_topic: str, _queue_id: int) -> bool:
    return True


@pytest.mark.parametrize(
    ("keys", "index_files"),
    [
        pytest.param([1] * 6, 1, id="room for one"),
        pytest.param([1] * 7, 1, id="full"),
        pytest.param([1] * 7 + [0], 2, id="full, and a record without a key"),
        pytest.param([1] * 7 + [0, 0, 1], 2, id="full, and one with a key later"),
        pytest.param([1] * 8, 2, id="one too many"),
        pytest.param([3] * 40, 18, id="keys of a record in two files"),
        pytest.param([2, 0, 5] * 30, 30, id="last one full"),
        pytest.param([2, 0, 5] * 30 + [0], 31, id="last one full, and a record without a key"),
        pytest.param([0] * 30, 1, id="no key at all"),
        pytest.param([0] * 9 + [20], 3, id="one record in three files"),
        pytest.param([], 0, id="no record"),
    ],
)
def test_index_files_are_those_of_one_thread(tmp_path: Path, keys: list[int], index_files: int) -> None:
    root = tmp_path / "store"
    write(root, keys)
    alone = built(root, tmp_path / "alone")
    assert len([path for path in alone if path.startswith("index/")]) == index_files
    assert built(root, tmp_path / "spread", PicklingRunner()) == alone
    assert built(root, tmp_path / "index", PicklingRunner(), queues=False) == {
        path: content for path, content in alone.items() if path.startswith("index/")
    }


def write_again(file: Path) -> None:
    """Write the records of a log file once more, but the first and the last, into a file with a name inside of it."""
    content = file.read_bytes()
    starts = [0]
    while content[starts[-1] + 4 : starts[-1] + 8] != BLANK_CODE:
        starts.append(starts[-1] + int.from_bytes(content[starts[-1] : starts[-1] + 4], "big"))
    first, last = starts[1], starts[-2]
    blank = (len(content) - (last - first)).to_bytes(4, "big") + BLANK_CODE
    again = (content[first:last] + blank).ljust(len(content), b"\0")
    (file.parent / f"{int(file.name) + first:020d}").write_bytes(again)


def test_records_below_the_last_one_are_left_out(tmp_path: Path) -> None:
    root = tmp_path / "store"
    write(root, [3] * 60)
    write_again(sorted((root / "commitlog").iterdir())[1])
    alone = built(root, tmp_path / "alone")
    assert built(root, tmp_path / "spread", PicklingRunner()) == alone


def test_a_file_that_is_left_out_whole_still_asks_for_room(tmp_path: Path) -> None:
    root = tmp_path / "store"
    write(root, [1] * 57)
    *_, before, last = sorted((root / "commitlog").iterdir())
    last.unlink()  # with the only record that does not fit into eight full files of the index
    write_again(before)
    alone = built(root, tmp_path / "alone")
    assert len([path for path in alone if path.startswith("index/")]) == 9
    assert built(root, tmp_path / "spread", PicklingRunner()) == alone


def test_a_queue_whose_records_are_gone_keeps_its_units(tmp_path: Path) -> None:
    root = tmp_path / "store"
    write(root, [1] * 60)
    for first in sorted((root / "commitlog").iterdir())[:2]:
        first.unlink()
    alone = built(root, tmp_path / "alone")
    assert "consumequeue/Early/0/00000000000000000000" in alone
    assert built(root, tmp_path / "spread", PicklingRunner()) == alone


def test_damage_ends_the_build(tmp_path: Path) -> None:
    root = tmp_path / "store"
    write(root, [3] * 60)
    files = sorted((root / "commitlog").iterdir())
    with files[3].open("r+b") as file:
        file.seek(300)
        file.write(b"\xff" * 200)
    alone = built(root, tmp_path / "alone")
    assert built(root, tmp_path / "spread", PicklingRunner()) == alone
    whole = built(root, tmp_path / "index", PicklingRunner(), queues=False)
    assert whole.keys() < alone.keys()


def test_how_many_records_are_written_at_once_does_not_matter(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root = tmp_path / "store"
    write(root, [1] * 120)
    # Without a message, which no unit can stand for in the log's first file, its queue is out of place from there on.
    turn_into_rollback(min((root / "commitlog").iterdir()), 4)
    alone = built(root, tmp_path / "alone")
    for number, module in enumerate((derived_writer, parallel)):
        monkeypatch.setattr(module, "HELD_ROWS_MAX", 1)
        assert built(root, tmp_path / f"here-{number}") == alone
        assert built(root, tmp_path / f"spread-{number}", PicklingRunner()) == alone


def turn_into_rollback(file: Path, number: int) -> None:
    """Give a record the type of those that have no place in a queue."""
    content = bytearray(file.read_bytes())
    at = 0
    for _ in range(number):
        at += int.from_bytes(content[at : at + 4], "big")
    place = at + SYS_FLAG_AT
    content[place : place + 4] = TRANSACTION_ROLLBACK.to_bytes(4, "big")
    file.write_bytes(content)


def test_topics_that_are_one_string_are_one_queue(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root = tmp_path / "store"
    write(root, [1] * 60)
    for number, file in enumerate(sorted((root / "commitlog").iterdir())):
        content = file.read_bytes()
        for name in (b"Topic0", b"Topic1"):
            # Neither is UTF-8, and a broker reads both as T and a replacement character.
            content = content.replace(name, name[:1] + bytes([0xFE + (name == b"Topic1")]) + name[2:-1] + b"0")
        file.write_bytes(content)
        assert number < 20
    alone = built(root, tmp_path / "alone")
    assert len([path for path in alone if path.startswith("consumequeue/T\ufffdpic0/")]) > 1
    monkeypatch.setattr(derived_writer, "HELD_ROWS_MAX", 1)
    assert built(root, tmp_path / "here") == alone
    assert built(root, tmp_path / "spread", PicklingRunner()) == alone
    # Each record in the order of the log, whichever of the two it says.
    content = b"".join(alone[path] for path in sorted(alone) if path.startswith("consumequeue/T\ufffdpic0/"))
    offsets = [UNIT.struct.parse(content[at : at + UNIT_SIZE]).physical_offset for at in range(0, 400, UNIT_SIZE)]
    assert offsets == sorted(offsets)


def test_progress_goes_on_while_files_are_written(tmp_path: Path) -> None:
    root = tmp_path / "store"
    write(root, [3] * 60)
    said: list[tuple[int, int]] = []
    (tmp_path / "spread").mkdir()
    build(
        survey(open_directory(root), SETTINGS),
        rules_for(VERSION),
        BuildRequest(_all, index=True),
        tmp_path / "spread",
        on_progress=lambda done, total: said.append((done, total)),
        runner=PicklingRunner(),
    )
    assert [done for done, _ in said] == sorted({done for done, _ in said})
    assert said[-1][0] == said[-1][1] > said[0][1]
