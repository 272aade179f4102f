"""What brokers make of an index file of another length: nothing but the entries that were cut off is lost."""

import os
import time
from pathlib import Path

import pytest

from tests.broker.broker import Judge

SIZES = {"mappedFileSizeCommitLog": 131072, "maxHashSlotNum": 100, "maxIndexNum": 400}
FULL = 40 + 4 * 100 + 20 * 400
MESSAGES = 270
"""With two keys each: one full file of 399 entries and one that is not full."""


@pytest.mark.parametrize(
    ("number", "length", "lost"),
    [(0, FULL + 1, 0), (1, FULL // 2, 0), (0, FULL - 20, 5), (0, 40, 399)],
)
def test_only_entries_that_were_cut_off_are_lost(
    judge: Judge, tmp_path: Path, number: int, length: int, lost: int
) -> None:
    with judge.open(tmp_path, SIZES, {"T": {"writeQueueNums": 1}}) as store:
        # Two files that a broker begins within one millisecond have one name, and are one.
        store.put(_message(0))
        store.wait_dispatched()
        time.sleep(0.002)
        store.put(*[_message(number) for number in range(1, MESSAGES)])
        store.wait_dispatched()
    files = sorted((tmp_path / "index").iterdir())
    assert len(files) == 2
    file = files[number]
    assert file.stat().st_size == FULL
    os.truncate(file, length)
    with judge.open(tmp_path, SIZES, {"T": {"writeQueueNums": 1}}) as store:
        assert store.serving
        store.put(_message(MESSAGES))
        store.wait_dispatched()
        keys = store.read()["keys"]
    assert sum(not offsets for _, _, offsets, *_ in keys) == lost
    assert file.stat().st_size == max(length, FULL)


def _message(number: int) -> dict[str, object]:
    keys = {"KEYS": f"k{number}", "UNIQ_KEY": f"u{number}"}
    return {"topic": "T", "queueId": 0, "body": b"x", "properties": keys}
