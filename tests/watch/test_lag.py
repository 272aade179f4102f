"""An alert is raised by two looks in a row, and cleared by one."""

from __future__ import annotations

from rmqtool.watch.watcher import Alarms, Lags


def states(alarms: Alarms, *values: int | None) -> list[list[bool]]:
    return [[alert.is_raised for alert in alarms.look(Lags(dispatch_bytes=value))] for value in values]


def test_two_looks_raise_and_one_clears() -> None:
    alarms = Alarms({"dispatch-lag": 100})
    assert states(alarms, 101, 101, 500, 100, 101, 0) == [[], [True], [], [False], [], []]


def test_an_unknown_lag_passes_no_limit() -> None:
    assert states(Alarms({"dispatch-lag": 100}), None, 101, None, 101, 101) == [[], [], [], [], [True]]


def test_without_a_limit_nothing_is_raised() -> None:
    assert states(Alarms({"dispatch-lag": None, "flush-lag": 1}), 1 << 60, 1 << 60) == [[], []]


def test_a_first_look_above_the_limit_is_uncertain() -> None:
    alarms = Alarms({"index-lag": 0})
    assert not alarms.is_uncertain
    assert list(alarms.look(Lags(index_bytes=1))) == []
    assert alarms.is_uncertain
    (alert,) = alarms.look(Lags(index_bytes=2))
    assert not alarms.is_uncertain
    assert alert.as_json() == {
        "alert": "index-lag",
        "state": "raised",
        "value": 2,
        "limit": 0,
        "message": "records up to 2 bytes before the last one with a unit are not in the index, the limit is 0",
    }
