"""What a killed broker leaves, by how far it came with the last messages; tests/broker holds the bytes against one."""

from __future__ import annotations

from pathlib import Path

import pytest

from rmqtool.engine.append.message import Message
from rmqtool.engine.append.open_writer import new_store
from rmqtool.engine.append.store_writer import CrashStep
from rmqtool.engine.append.writer_config import WriterConfig
from rmqtool.engine.rules.versions import rules_for
from rmqtool.formats.checkpoint import parse_checkpoint

COUNT = 30
SMALL = {
    "commitlog_file_size": 2048,
    "consumequeue_file_size": 600,
    "index_slot_count": 100,
    "index_entry_count": 200,
}
TIME_MS = 1_700_000_000_000


def killed(path: Path, step: CrashStep, *, transient_pool: bool = False) -> tuple[int, int, int, int]:
    """Records in the files of the log, units in the queue, entries in the index, and the checkpoint's time."""
    config = WriterConfig(**SMALL, transient_pool=transient_pool)
    messages = [Message(topic="t", body=b"body", properties={"KEYS": f"k{n}"}) for n in range(COUNT)]
    with new_store(path, rules_for("5.5.0"), config, lambda: TIME_MS) as writer:
        writer.crash_after(step)
        writer.put_all(messages)
        writer.write_out()
        writer.sync_if_due()
        writer.close(crash=True)
    log = b"".join(file.read_bytes() for file in sorted((path / "commitlog").iterdir()))
    queue = b"".join(file.read_bytes() for file in (path / "consumequeue").rglob("0*") if file.is_file())
    index = next((path / "index").iterdir(), None)
    entries = int.from_bytes(index.read_bytes()[36:40], "big") - 1 if index is not None else 0
    units = sum(queue[at : at + 20] != bytes(20) for at in range(0, len(queue), 20))
    checkpoint = parse_checkpoint((path / "checkpoint").read_bytes()[:48])
    assert (path / "abort").exists()
    return log.count(b"body"), units, entries, checkpoint.commitlog_timestamp_ms


@pytest.mark.parametrize(
    ("step", "expected"),
    [
        (CrashStep.WRITTEN, (COUNT, 0, 0, 0)),
        (CrashStep.COMMITTED, (COUNT, 0, 0, 0)),
        (CrashStep.FLUSHED, (COUNT, 0, 0, 0)),
        (CrashStep.DISPATCHED, (COUNT, COUNT, COUNT - 1, 0)),
        (CrashStep.INDEX, (COUNT, COUNT, COUNT, 0)),
        (CrashStep.CHECKPOINT, (COUNT, COUNT, COUNT, TIME_MS)),
    ],
)
def test_each_step_leaves_what_it_reached(tmp_path: Path, step: CrashStep, expected: tuple[int, int, int, int]) -> None:
    assert killed(tmp_path, step) == expected


def test_the_brokers_own_memory_ends_with_it(tmp_path: Path) -> None:
    records, units, entries, _ = killed(tmp_path, CrashStep.WRITTEN, transient_pool=True)
    assert 0 < records < COUNT, "full files were committed, the last one was not"
    assert (units, entries) == (records, records), "what was committed is dispatched"
    assert killed(tmp_path / "committed", CrashStep.COMMITTED, transient_pool=True)[0] == COUNT


def test_a_whole_file_may_be_held_back(tmp_path: Path) -> None:
    """The last record alone, and one that is the first of its file."""
    config = WriterConfig(**SMALL)
    with new_store(tmp_path, rules_for("5.5.0"), config) as writer:
        writer.crash_after(CrashStep.DISPATCHED)
        writer.put(Message(topic="t", body=b"x" * 1900))
        writer.put(Message(topic="t", body=b"y" * 1900))
        writer.close(crash=True)
    assert (tmp_path / "consumequeue/t/0" / f"{0:020}").read_bytes()[20:40] != bytes(20)
