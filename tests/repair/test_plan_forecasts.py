"""How many starts a plan's forecasts simulate at a time."""

from __future__ import annotations

import os

import pytest

from rmqtool import memory
from rmqtool.memory import MemoryBudget
from rmqtool.repair.plan_forecasts import _starts_at_once

MIB = 1 << 20


def test_fewer_starts_run_at_a_time_where_each_knows_of_many_queues(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "cpu_count", lambda: 2)
    monkeypatch.setattr(memory._CURRENT, "budget", MemoryBudget(500 * MIB, 100 * MIB))
    assert _starts_at_once(100) == 2
    assert _starts_at_once(100_000) == 1
    monkeypatch.setattr(memory._CURRENT, "budget", MemoryBudget())
    assert _starts_at_once(100_000) == 2
