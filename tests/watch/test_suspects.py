"""What looks wrong once is looked at again, and reported once it was seen twice or does not settle."""

from __future__ import annotations

from rmqtool.findings.finding import Finding, Severity
from rmqtool.watch.watcher import LOOKS_MAX, Suspects


def findings(*positions: int) -> list[Finding]:
    return [Finding("a.b", Severity.ERROR, "file", f"text {at}", file_position=at) for at in positions]


def test_what_was_seen_twice_is_confirmed() -> None:
    suspects = Suspects(0)
    assert not suspects.confirms("log", findings(1, 2))
    assert suspects.confirms("log", findings(2))
    assert not suspects.confirms("log", findings(2))


def test_what_changes_is_reported_in_the_end() -> None:
    suspects = Suspects(0)
    answers = [suspects.confirms("log", findings(at)) for at in range(LOOKS_MAX)]
    assert answers == [False] * (LOOKS_MAX - 1) + [True]


def test_another_thing_begins_again() -> None:
    suspects = Suspects(0)
    assert not suspects.confirms("log", findings(1))
    assert not suspects.confirms("index", findings(1))
    assert suspects.confirms("index", findings(1))
    assert not suspects.confirms("log", findings(1))
    suspects.clear()
    assert not suspects.confirms("log", findings(1))


def test_it_is_early_until_the_time_to_settle_is_over() -> None:
    now = [100.0]
    suspects = Suspects(5, clock=lambda: now[0])
    suspects.confirms("log", findings(1))
    now[0] = 104.9
    assert suspects.is_early("log")
    assert not suspects.is_early("index")
    now[0] = 105.0
    assert not suspects.is_early("log")
