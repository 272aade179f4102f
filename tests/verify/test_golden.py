"""Stores of real brokers: healthy ones have nothing above a note, damaged ones exactly what their edit implies."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from rmqtool.verify.survey.context import VerifyOptions
from tests import golden_stores
from tests.conftest import Unpacked
from tests.store_state import assert_store_unchanged
from tests.verify.stores import above_note, verified, writer_of

ABORT = {"store.abort-present": 1}
BEHIND = {**ABORT, "consumequeue.behind-log": 7, "index.missing-key": 1}
STALE = {
    **ABORT,
    # The log was cut, then grew until a new record ended where an old one began: the old ones are its end again, which
    # is a note, for a clock that was set back looks the same. The file that came after them was unlinked.
    "commitlog.missing-file": 1,
    "consumequeue.ahead-of-log": 1,
}

TRUE_OF_UNDAMAGED: dict[str, dict[str, int]] = {
    "crashed": BEHIND,
    "crashed-abort-removed": {"consumequeue.behind-log": 6, "index.missing-key": 1},
    "crashed-no-dispatch": {**ABORT, "consumequeue.behind-log": 6, "index.missing-file": 1},
    "crashed-preallocated-next-file": ABORT,
    "cq-ext-crashed": ABORT,
    "default-size-crashed": ABORT,
    "delay-crashed": {**ABORT, "consumequeue.behind-log": 2, "index.missing-key": 1},
    "inner-batch-crashed": ABORT,
    "multi-path-crashed": ABORT,
    # Killed before the database was written to the disk: a start dispatches everything again.
    "rocksdb-cq-crashed": {**ABORT, "consumequeue.behind-log": 6},
    "sync-flush-crashed": ABORT,
    # A replica whose last record was cut inside its properties, which no broker notices.
    "slave-middle": {**ABORT, "commitlog.torn-record": 1, "consumequeue.behind-log": 1, "index.missing-key": 1},
    "stale-tail": STALE,
    # Rebuilt by 5.5.0 from the last ten log files only: the messages before have no unit.
    "5.5.0-filler-min-zero": {"consumequeue.filler-readable": 6, "consumequeue.missing-unit": 6},
    "5.5.0-filler-queue": {"consumequeue.missing-file": 2, "consumequeue.missing-unit": 3},
}
"""Findings above a note in stores that nobody edited: a broker was killed, or did this itself."""

TRUE_OF_BROKERS: dict[str, dict[str, int]] = {
    "slave": {**ABORT, "commitlog.torn-record": 1},
    "compaction-leftover": {"compaction.leftover-file": 1},
}

NO_UNITS = {"consumequeue.missing-queue": 6}
LOST_END = {"consumequeue.ahead-of-log": 4, "index.dangling-entry": 1}
NO_LOG = {"commitlog.missing-file": 1, "consumequeue.ahead-of-log": 6}

OF_DAMAGE: dict[str, dict[str, int]] = {
    "abort-only": {},
    "base": {},
    "blank-in-middle": {"commitlog.bad-size": 1},
    "checkpoint-corrupt": {"checkpoint.ahead-of-log": 3},
    "checkpoint-missing": {"checkpoint.missing": 1},
    "checkpoint-negative": {"checkpoint.bad-time": 3},
    "checkpoint-short": {"checkpoint.bad-size": 1},
    "checkpoint-zero": {"checkpoint.bad-time": 1},
    # A broker that was killed may never have written it.
    "4.9.7-damage-checkpoint-zero-abort": {},
    "5.5.0-damage-checkpoint-zero-abort": {},
    # Twelve records were made zero; the first of them had a blank behind it.
    "cq-ahead": {"commitlog.hole": 1, **LOST_END},
    "cq-dir-missing": NO_UNITS,
    "cq-empty-file": {"consumequeue.wrong-file-size": 1},
    "cq-entry-offset-beyond": {"consumequeue.ahead-of-log": 1},
    "cq-entry-wrong-offset": {"consumequeue.dangling-unit": 1},
    "cq-entry-wrong-size": {"consumequeue.wrong-record-size": 1},
    "cq-entry-wrong-tag": {"consumequeue.wrong-tags-code": 1},
    "cq-entry-zero-first-file": {"consumequeue.gap": 1},
    # The only unit of the last file.
    "cq-entry-zero-last-file": {"consumequeue.zero-file": 1},
    "cq-first-file-missing": {"consumequeue.missing-file": 1},
    "cq-last-file-missing": {"consumequeue.missing-file": 1},
    "cq-last-file-zero": {"consumequeue.zero-file": 1},
    "cq-last-file-zero-last-entry-missing": {"consumequeue.zero-file": 1, "consumequeue.missing-unit": 1},
    "cq-one-queue-missing": {"consumequeue.missing-queue": 1},
    "cq-only-file-zero": {"consumequeue.zero-file": 1},
    "cq-short-file": {"consumequeue.wrong-file-size": 1},
    "flip-body-earlier-file": {"commitlog.body-crc-mismatch": 1},
    "flip-body-first-record": {"commitlog.body-crc-mismatch": 1},
    "flip-body-last-file": {"commitlog.body-crc-mismatch": 1},
    "flip-body-middle-file": {"commitlog.body-crc-mismatch": 1},
    "flip-physical-offset": {"commitlog.self-offset-mismatch": 1},
    "flip-queue-offset": {"commitlog.doubtful-header": 1},
    "flip-store-timestamp": {"commitlog.store-time-regress": 1},
    "flip-topic-byte": {"commitlog.doubtful-header": 1},
    "index-chain-loop": {"index.chain-loop": 1},
    "index-chain-self": {"index.chain-loop": 1},
    "index-dir-missing": {"index.missing-file": 1},
    "index-last-missing": {"index.missing-key": 1},
    "index-short": {"index.bad-header": 1, "index.missing-key": 1},
    "index-stray-name": {},
    "index-zero": {"index.zero-file": 1, "index.missing-key": 1},
    # One finding for each index file, of which 5.5.0 has more, for it enters tags.
    "4.9.7-damage-log-dir-empty": {**NO_LOG, "index.dangling-entry": 2},
    "4.9.7-damage-log-dir-missing": {**NO_LOG, "index.dangling-entry": 2},
    "5.5.0-damage-log-dir-empty": {**NO_LOG, "index.dangling-entry": 3},
    "5.5.0-damage-log-dir-missing": {**NO_LOG, "index.dangling-entry": 3},
    "log-empty-last-file": {"commitlog.empty-file": 1},
    # Looks like a log whose first file has expired.
    "log-first-file-missing": {},
    "log-last-file-missing": {"commitlog.missing-file": 1, **LOST_END},
    "log-last-file-truncated-to-zero": {"commitlog.empty-file": 1, **LOST_END},
    "log-middle-file-missing": {"commitlog.missing-file": 1},
    "log-short-last-file": {"commitlog.wrong-file-size": 1},
    "log-stray-directory": {"commitlog.stray-file": 1},
    "log-stray-file": {"commitlog.stray-file": 1},
    "log-zero-last-file": {},
    "missing-final-blank": {"commitlog.missing-end-blank": 1},
    "size-huge": {"commitlog.bad-size": 1},
    "size-negative": {"commitlog.bad-size": 1},
    "size-plausible": {"commitlog.bad-lengths": 1},
    "size-small": {"commitlog.bad-lengths": 1},
    "size-zero": {"commitlog.bad-size": 1},
    "torn-last-record": {"commitlog.torn-record": 1},
    "wrong-magic": {"commitlog.bad-magic": 1},
    "wrong-magic-first-of-file": {"commitlog.bad-magic": 1},
    "zero-hole": {"commitlog.hole": 1},
    "crashed-abort-removed": {"consumequeue.behind-log": 6, "index.missing-key": 1},
    "many-flip-second-file-no-checkpoint": {"checkpoint.missing": 1, "commitlog.body-crc-mismatch": 1},
    "many-no-checkpoint": {"checkpoint.missing": 1},
    # Nothing tells any more what had been dispatched.
    "many-no-derived": {"checkpoint.missing": 1, "consumequeue.behind-log": 6, "index.missing-file": 1},
    "many-no-queues": NO_UNITS,
    "many-no-queues-no-checkpoint": {"checkpoint.missing": 1, **NO_UNITS},
    "many-one-queue-missing-no-checkpoint": {"checkpoint.missing": 1, "consumequeue.missing-queue": 1},
}
"""Findings above a note by damage, `abort` left aside."""


def damage_of(name: str) -> str:
    """A store's name without the writer's version, `damage-`, and what says that `abort` is there."""
    return name.removeprefix(f"{writer_of(name)}-").removeprefix("damage-").removesuffix("-abort")


@pytest.mark.parametrize("name", [*golden_stores.healthy_names(), *golden_stores.crashed_names()])
def test_undamaged_stores(golden: Unpacked, name: str) -> None:
    expected = TRUE_OF_UNDAMAGED.get(name, TRUE_OF_UNDAMAGED.get(damage_of(name), {}))
    _check(golden(name), name, expected)


@pytest.mark.parametrize("name", golden_stores.broker_names())
def test_stores_of_whole_brokers(golden: Unpacked, name: str) -> None:
    kind = name.removeprefix(f"broker-{writer_of(name)}-")
    expected = dict(TRUE_OF_BROKERS.get(kind, {}) | TRUE_OF_BROKERS.get(name, {}))
    if (golden(name) / "abort").exists():
        expected |= ABORT
    _check(golden(name), name, expected)


@pytest.mark.parametrize("name", golden_stores.damaged_names())
def test_damaged_stores(golden: Unpacked, name: str) -> None:
    expected = dict(OF_DAMAGE[name] if name in OF_DAMAGE else OF_DAMAGE[damage_of(name)])
    if (golden(name) / "abort").exists():
        expected |= ABORT
    _check(golden(name), name, expected)


@pytest.mark.parametrize("name", ["5.5.0-damage-zero-hole", "4.9.7-damage-flip-topic-byte", "5.5.0-inner-batch"])
def test_both_readers_find_the_same(golden: Unpacked, name: str) -> None:
    plain = verified(golden(name), writer_of(name), VerifyOptions(compiled=False))[1]
    compiled = verified(golden(name), writer_of(name), VerifyOptions(compiled=True))[1]
    assert plain == compiled


@pytest.mark.parametrize("writer", ["4.9.7", "5.5.0"])
@pytest.mark.parametrize("place", ["earlier-file", "first-record", "last-file", "middle-file"])
def test_a_flipped_bit_is_located(golden: Unpacked, writer: str, place: str) -> None:
    name = f"{writer}-damage-flip-body-{place}"
    (edit,) = golden_stores.manifest(name).damage
    (found,) = verified(golden(name), writer)[1]
    bit = (int(edit["old"], 16) ^ int(edit["new"], 16)).bit_length() - 1
    assert found.file == edit["file"]
    assert f"bit {bit} of file position {edit['position']}" in (found.candidate or "")
    assert "the queues know of" in found.message


def _check(path: Path, name: str, expected: dict[str, int]) -> None:
    with assert_store_unchanged(path):
        summary, found = verified(path, writer_of(name))
    assert above_note(found) == Counter(expected)
    assert summary.findings.total() == len(found)
    is_log_lost = "log-dir" in name
    assert [unread.path for unread in summary.not_looked_at] == ["commitlog"] * is_log_lost
    assert summary.complete != is_log_lost
