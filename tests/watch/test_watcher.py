"""A watch checks what has come, once, and calls nothing damage that a broker does or that is still being written."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from rmqtool.errors import UnreadableError
from rmqtool.watch.range_check import CheckedRange, RangeChecker
from rmqtool.watch.state import WatchState, load_state
from rmqtool.watch.watcher import LOOK_SECONDS
from tests.watch.growing_store import FILE_SIZE, GrowingStore, WatchedStore, growing_store


@pytest.fixture
def store(tmp_path: Path) -> Iterator[GrowingStore]:
    with growing_store(tmp_path / "store") as store:
        yield store


def files_of(root: Path) -> dict[str, tuple[int, str]]:
    return {
        str(path.relative_to(root)): (path.stat().st_mtime_ns, hashlib.sha256(path.read_bytes()).hexdigest())
        for path in sorted(root.rglob("*"))
        if path.is_file()
    }


def test_everything_that_is_flushed_is_checked_across_files_and_nothing_is_changed(store: GrowingStore) -> None:
    store.put(10)
    watch = WatchedStore(store)
    for _ in range(12):
        end = store.put(80)
        before = files_of(store.root)
        assert watch.look() == []
        assert watch.position == end
        assert files_of(store.root) == before
    counts = watch.watcher.state.counts
    assert (counts.records, counts.units, counts.entries) == (970, 970, 1940)
    assert end > 4 * FILE_SIZE
    assert counts.verified_bytes == end
    lags = watch.watcher.lags
    assert (lags.log_end, lags.dispatch_bytes, lags.index_bytes, watch.watcher.verify_lag_bytes) == (end, 0, 0, 0)


@pytest.mark.parametrize("dispatched", [True, False])
def test_what_is_not_flushed_or_not_dispatched_is_not_judged(store: GrowingStore, dispatched: bool) -> None:
    flushed = store.put(20)
    watch = WatchedStore(store)
    end = store.put(20, flushed=False, dispatched=dispatched)
    store.flip(flushed + 200)
    assert watch.look(5) == []
    assert (watch.position, watch.watcher.lags.log_end) == (flushed, end)
    lags = watch.watcher.lags
    assert (lags.flush_ms or 0) > 0
    assert lags.dispatch_bytes == (0 if dispatched else end - flushed)
    store.put(1)
    assert watch.look(2) == ["commitlog.body-crc-mismatch"]


def test_reads_what_is_new_and_little_else(store: GrowingStore) -> None:
    end = store.put(1200)
    watch = WatchedStore(store, from_start=True)
    watch.look()
    assert watch.limit.byte_count > end
    before = watch.limit.byte_count
    watch.look()
    assert watch.limit.byte_count - before < 20_000  # a look at ends
    before = watch.limit.byte_count
    assert store.put(30) - end < 10_000
    watch.look()
    # The new part of log, queues and index, and one file's rest, where the end of the log is looked for.
    assert watch.limit.byte_count - before < 2 * FILE_SIZE + 60_000


@pytest.mark.parametrize("looks", [2, 3])
def test_a_record_that_is_half_visible_at_one_look_is_no_damage(store: GrowingStore, looks: int) -> None:
    middle = store.put(10)
    watch = WatchedStore(store)
    watch.look()
    end = store.put(10)
    store.flip(middle + 200)
    assert watch.look() == []
    assert watch.position == middle
    assert watch.watcher.is_unsettled
    store.flip(middle + 200)
    assert watch.look(looks) == []
    assert watch.position == end


def test_damage_is_reported_once_when_it_is_still_there_and_what_follows_is_checked(store: GrowingStore) -> None:
    middle = store.put(10)
    watch = WatchedStore(store)
    watch.look()
    end = store.put(10)
    store.flip(middle + 200)
    assert watch.look(4) == ["commitlog.body-crc-mismatch"]
    assert watch.position == end
    store.put(10)
    assert watch.look(3) == ["commitlog.body-crc-mismatch"]
    assert watch.watcher.state.counts.findings == {"commitlog.body-crc-mismatch": 1}


def test_a_second_look_too_soon_confirms_nothing(store: GrowingStore) -> None:
    middle = store.put(10)
    watch = WatchedStore(store)
    watch.look()
    store.put(10)
    store.flip(middle + 200)
    watch.look()
    watch.now -= 9.9
    assert watch.look() == []
    assert watch.look() == ["commitlog.body-crc-mismatch"]


def test_what_was_doubtful_in_a_store_that_is_gone_is_not_waited_for(store: GrowingStore) -> None:
    store.put(40)
    watch = WatchedStore(store)
    watch.look()
    middle = watch.position
    store.put(40)
    store.flip(middle + 200)
    watch.look()
    assert watch.watcher.is_unsettled
    (store.root / "consumequeue").rename(store.root / "moved")
    watch.look(2)
    assert not watch.watcher.is_unsettled


def test_units_and_index_entries_are_compared(store: GrowingStore) -> None:
    store.put(40)
    watch = WatchedStore(store)
    watch.look()
    store.put(40)
    queue = min((store.root / "consumequeue" / "orders" / "0").iterdir())
    with queue.open("r+b") as file:
        file.seek(12 * 20 + 12)  # the tags code of a unit that was not checked yet
        file.write(b"\x55" * 8)
    index = max((store.root / "index").iterdir())
    with index.open("r+b") as file:
        file.seek(40 + 4 * 100 + 20 * 120)  # the hash of an entry
        file.write(b"\x11" * 4)
    assert sorted(watch.look(3)) == ["consumequeue.wrong-tags-code", "index.bad-entry", "index.missing-key"]


def test_units_that_are_gone_are_missing(store: GrowingStore) -> None:
    store.put(40)
    watch = WatchedStore(store)
    watch.look()
    store.put(40)
    queue = min((store.root / "consumequeue" / "orders" / "1").iterdir())
    with queue.open("r+b") as file:
        file.seek(12 * 20)
        file.write(bytes(20))
    assert set(watch.look(3)) <= {"consumequeue.gap", "consumequeue.missing-unit"}
    assert watch.look() != []


def test_messages_without_keys_are_no_lag_of_the_index(store: GrowingStore) -> None:
    store.put(10)
    watch = WatchedStore(store, limits={"index-lag": 5000})
    watch.look()
    for _ in range(4):
        store.put(30, keys=False)
        watch.look(2)
        assert watch.watcher.lags.index_bytes == 0
    again = WatchedStore(store, watch.watcher.state, limits={"index-lag": 5000})
    again.look(3)
    assert again.watcher.lags.index_bytes == 0
    assert not [row for row in (*watch.rows, *again.rows) if row["type"] == "alert"]


def test_keys_that_are_not_entered_are_a_lag_of_the_index(store: GrowingStore) -> None:
    store.put(10)
    watch = WatchedStore(store, limits={"index-lag": 5000})
    watch.look()
    index = max((store.root / "index").iterdir())
    kept = index.read_bytes()
    store.put(60)
    index.write_bytes(kept)
    assert watch.look(3) == ["index.missing-key"]
    assert (watch.watcher.lags.index_bytes or 0) > 5000
    assert [(row["alert"], row["state"]) for row in watch.rows if row["type"] == "alert"] == [("index-lag", "raised")]


def test_a_full_index_file_is_checked_as_a_whole(store: GrowingStore) -> None:
    store.put(60)
    watch = WatchedStore(store)
    watch.look()
    first = min((store.root / "index").iterdir())
    store.put(200)  # fills it
    with first.open("r+b") as file:
        file.seek(40 + 4 * 7)
        file.write(b"\0\0\0\7")
    assert len(list((store.root / "index").iterdir())) > 1
    assert watch.look(3) == ["index.wrong-slot"]
    assert watch.look(3) == ["index.wrong-slot"]


def test_retention_is_no_finding(store: GrowingStore) -> None:
    store.put(900)
    watch = WatchedStore(store, from_start=True, chunk_bytes=20_000)
    store.log_file(0).unlink()
    store.log_file(1).unlink()
    for name in ("0", "1", "2", "3"):
        oldest = min((store.root / "consumequeue" / "orders" / name).iterdir())
        oldest.unlink()
    assert watch.look(3) == []
    assert watch.watcher.state.first_offset == 2 * FILE_SIZE
    end = store.put(10)
    store.log_file(2).unlink()
    assert watch.look(3) == []
    assert watch.position == end
    behind = watch.watcher.state
    store.put(1000)
    late = WatchedStore(store, behind)
    for number in range(3, end // FILE_SIZE + 2):
        store.log_file(number).unlink()
    assert late.look(3) == []
    assert late.events == ["expired"]
    assert behind.counts.skipped_bytes > 0


@pytest.mark.parametrize("crash", [True, False])
def test_a_restart_of_the_broker_is_no_finding(store: GrowingStore, crash: bool) -> None:
    store.put(100)
    watch = WatchedStore(store)
    watch.look()
    store.put(50, flushed=False, dispatched=False)
    store.restart(crash=crash, meanwhile=watch.look)
    assert watch.look(2) == []
    assert watch.events == ["started", "broker-stopped", "broker-started"]
    end = store.put(300)
    assert watch.look(3) == []
    assert watch.position == end


@pytest.mark.parametrize("crash", [True, False])
def test_index_entries_that_a_start_has_dropped_are_no_finding(store: GrowingStore, crash: bool) -> None:
    """Brokers delete, after a crash, an index file that is newer than the checkpoint, and do not enter all again."""
    store.put(20)
    watch = WatchedStore(store)
    watch.look()
    end = store.put(20, flushed=False)
    if crash:
        store.restart(crash=True, meanwhile=watch.look)
    with max((store.root / "index").iterdir()).open("r+b") as file:
        file.seek(40 + 4 * 100 + 20 * 66 + 4)
        file.write((end + 10_000).to_bytes(8, "big"))  # an entry less
    store.put(20)
    ids = watch.look(3)
    assert ("index.missing-key" in ids) is not crash
    assert ("index-dropped" in watch.events) is crash


def test_a_log_that_recovery_has_cut_before_the_position_is_checked_again_from_its_file(store: GrowingStore) -> None:
    store.put(100)
    watch = WatchedStore(store)
    watch.look()
    state = watch.watcher.state
    begin = watch.position
    with store.log_file(0).open("r+b") as file:
        file.seek(begin - 40)
        file.write(bytes(40))
    again = WatchedStore(store, state)
    again.look()
    assert again.events == ["rewound"]
    assert again.rows[0]["physical_offset"] == 0
    assert 0 < again.position < begin
    assert [row for row in again.rows if row["type"] == "finding"] == []


def test_a_file_missing_inside_the_log_is_a_finding_and_the_next_ones_are_checked(store: GrowingStore) -> None:
    store.put(100)
    watch = WatchedStore(store, from_start=True)
    watch.look()
    end = store.put(700)
    store.log_file(1).unlink()
    ids = watch.look(6)
    assert "commitlog.missing-file" in ids
    assert watch.position == end


def test_a_state_continues(store: GrowingStore, tmp_path: Path) -> None:
    store.put(100)
    watch = WatchedStore(store)
    watch.look()
    place = tmp_path / "state"
    watch.watcher.state.save(place)
    end = store.put(50)
    state = load_state(place, store.root)
    assert state == watch.watcher.state
    later = WatchedStore(store, state)
    assert later.look() == []
    assert later.events == []
    assert later.position == end
    assert state.counts.records == 150
    assert json.loads(place.read_text())["format"] == "rmqtool-watch-state-1"


def test_a_state_keeps_findings(store: GrowingStore, tmp_path: Path) -> None:
    store.put(100)
    store.flip(5000)
    watch = WatchedStore(store, from_start=True)
    assert watch.look(6)
    watch.watcher.state.save(tmp_path / "state")
    assert load_state(tmp_path / "state", store.root) == watch.watcher.state


def test_lag_is_an_alert_when_two_looks_see_it(store: GrowingStore) -> None:
    store.put(20)
    watch = WatchedStore(store, limits={"flush-lag": 100, "dispatch-lag": 10})
    watch.look()
    store.put(20, flushed=False)
    watch.look()
    assert watch.watcher.lags.dispatch_bytes == 0
    assert watch.watcher.is_unsettled
    assert [row for row in watch.rows if row["type"] == "alert"] == []
    watch.look(3)
    store.put(1)
    watch.look(2)
    told = [(row["alert"], row["state"]) for row in watch.rows if row["type"] == "alert"]
    assert told == [("flush-lag", "raised"), ("flush-lag", "cleared")]
    assert watch.watcher.state.counts.alerts == 1


def test_a_store_without_messages_is_waited_for(tmp_path: Path) -> None:
    with growing_store(tmp_path / "store") as store:
        watch = WatchedStore(store)
        assert watch.look(2) == []
        end = store.put(5)
        assert watch.look(2) == []
        assert watch.position == end
        assert watch.watcher.state.counts.records == 5


def test_a_new_state_of_a_large_store_starts_at_the_newest_file(store: GrowingStore) -> None:
    end = store.put(700)
    watch = WatchedStore(store)
    watch.look()
    assert watch.watcher.state.first_offset == end // FILE_SIZE * FILE_SIZE
    assert WatchState().first_offset is None


def test_lags_are_measured_and_alerts_raised_where_checking_fails(
    store: GrowingStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    store.put(20)
    watch = WatchedStore(store, limits={"flush-lag": 100})
    watch.look()
    checked = watch.position
    store.put(5)
    end = store.put(20, flushed=False)

    def fail(*_arguments: object, **_options: object) -> CheckedRange:
        raise UnreadableError("commitlog/00000000000000000000: no such file or directory")

    monkeypatch.setattr(RangeChecker, "check", fail)
    watch.look(2)
    assert watch.watcher.trouble is not None
    assert watch.watcher.lags.log_end == end
    assert watch.watcher.verify_lag_bytes == end - (checked or 0)
    assert [row["alert"] for row in watch.rows if row["type"] == "alert"] == ["flush-lag"]


def test_a_look_ends_where_checking_takes_long(store: GrowingStore, monkeypatch: pytest.MonkeyPatch) -> None:
    end = store.put(200)
    watch = WatchedStore(store, from_start=True, chunk_bytes=20_000)
    check = RangeChecker.check

    def slow_check(*arguments: Any, **options: Any) -> CheckedRange:
        watch.now += LOOK_SECONDS / 2
        return check(*arguments, **options)

    monkeypatch.setattr(RangeChecker, "check", slow_check)
    watch.look()
    assert watch.watcher.has_more
    assert watch.watcher.verify_lag_bytes == end - (watch.position or 0)
    assert 0 < (watch.position or 0) < end
    watch.look(3)
    assert watch.position == end
    assert not watch.watcher.has_more
