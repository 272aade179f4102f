"""Offsets as high as 63 bits hold, in names of files and in settings, cost no command more than those of every day."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from rmqtool.fixtures.recipe import make_store
from rmqtool.store.source import READS
from tests.commands.transcripts import Ran, rmqtool
from tests.fuzz.tiny_recipes import LOG_FILE_SIZE, TINY

UNIT_SIZE = 20
CPU_SECONDS_MAX = 5
"""Of a command on a store of a few files, which takes a tenth of one."""
OFFSETS = ((1 << 40) // UNIT_SIZE, (1 << 62) // UNIT_SIZE, ((1 << 63) - (1 << 32)) // UNIT_SIZE)
"""Units that queues begin with; the log of a broker is deleted from its start, and its queues too."""


def far_store(folder: Path, first_unit: int, log_start: int = 0) -> Path:
    """A small store with delayed messages, whose files are named as if the queues and the log had begun long ago."""
    store = folder / "store"
    make_store(TINY["tiny-delay"], store, "5.5.0")
    for file in sorted(store.glob("consumequeue/*/*/*")):
        file.rename(file.with_name(f"{int(file.name) + first_unit * UNIT_SIZE:020d}"))
    for file in sorted(store.glob("commitlog/*")):
        file.rename(file.with_name(f"{int(file.name) + log_start:020d}"))
    return store


def timed(*words: object) -> Ran:
    before = time.process_time()
    ran = rmqtool(*words)
    assert time.process_time() - before < CPU_SECONDS_MAX
    assert ran.code in (0, 3, 4, 6), ran.err
    assert "internal error" not in ran.err
    return ran


@pytest.mark.parametrize("first_unit", OFFSETS)
@pytest.mark.parametrize(
    "words",
    [
        ("dump", "--pending", "--format", "jsonl"),
        ("forecast", "--broker-version", "5.5.0"),
        ("verify", "--threads", "1"),
        ("recover", "--dry-run"),
        ("rebuild", "--dry-run"),
    ],
    ids=lambda words: words[0],
)
def test_queues_may_begin_anywhere(tmp_path: Path, first_unit: int, words: tuple[str, ...]) -> None:
    timed(words[0], far_store(tmp_path, first_unit), *words[1:])


def test_delayed_messages_are_found_wherever_their_queue_begins(tmp_path: Path) -> None:
    """Without `delayOffset.json` a broker begins at the minimum of the queue."""
    near = timed("dump", far_store(tmp_path / "near", 0), "--pending", "--format", "jsonl")
    far = timed("dump", far_store(tmp_path / "far", 1 << 50), "--pending", "--format", "jsonl")
    assert near.out.count("\n") == far.out.count("\n") == 3


@pytest.mark.parametrize("words", [("verify", "--threads", "1"), ("recover", "--dry-run"), ("info",), ("report",)])
@pytest.mark.parametrize("log_start", [(1 << 63) - LOG_FILE_SIZE, (1 << 63) - 2 * LOG_FILE_SIZE])
def test_a_log_that_ends_after_the_highest_offset_is_none(
    tmp_path: Path, log_start: int, words: tuple[str, ...]
) -> None:
    options = ("--html", tmp_path / "page.html") if words[0] == "report" else words[1:]
    timed(words[0], far_store(tmp_path, 0, log_start), *options)


def test_slots_that_a_setting_claims_are_not_read_from_a_hole(tmp_path: Path) -> None:
    conf = tmp_path / "broker.conf"
    conf.write_text(
        "maxHashSlotNum=2147483647\nmappedFileSizeCommitLog=4096\nmappedFileSizeConsumeQueue=100\n", "utf-8"
    )
    store = far_store(tmp_path, 0)
    before = READS.byte_count
    timed("forecast", store, "--broker-conf", conf, "--broker-version", "all")
    assert READS.byte_count - before < 16 << 20
