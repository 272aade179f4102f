"""What a copy's end knows: which records a master may still wait for, and what is after the end."""

from __future__ import annotations

import time

import pytest

from rmqtool.replication.log_copy import SETTLED_MS, RecentRecords


def test_a_record_stored_in_the_future_settles_no_newer_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    now_ms = 1_750_000_000_000
    monkeypatch.setattr(time, "time", lambda: now_ms / 1000)
    recent = RecentRecords()
    for age_ms, physical_offset in [(20_000, 0), (9000, 100), (5000, 200), (-3_600_000, 300), (1000, 400)]:
        recent.note(physical_offset, now_ms - age_ms, now_ms - age_ms)
    assert recent.first == 0
    assert recent.is_enough


def test_records_settle_once_newer_ones_arrive(monkeypatch: pytest.MonkeyPatch) -> None:
    now_ms = 1_750_000_000_000
    recent = RecentRecords()
    for second in range(31):
        monkeypatch.setattr(time, "time", lambda moment=now_ms / 1000 + second: moment)
        ahead_ms = 3_600_000 if second == 15 else 0
        recent.note(second * 100, now_ms + second * 1000 + ahead_ms, now_ms + second * 1000 + ahead_ms)
    assert recent.first == (30 - SETTLED_MS // 1000) * 100
