"""The verdict is the first that applies, in the order of consequence, and OK only where all was looked at."""

from __future__ import annotations

from typing import Any

import pytest

from rmqtool.answer.answer import Assessment, MissingLog
from rmqtool.findings.finding import StoreVerdict
from rmqtool.sides.unread import UnreadFiles

UNREAD = UnreadFiles("index", "index", "index files")
GRADES: list[tuple[StoreVerdict, dict[str, Any], str]] = [
    (StoreVerdict.LOG_MISSING, {"log_missing": MissingLog("no log")}, "LOG MISSING: no log"),
    (
        StoreVerdict.NOT_READABLE,
        {"unreadable": ("a", "b", "c", "d", "e"), "reader": "Run it."},
        "NOT READABLE: a; b; c and 2 more. Run it.",
    ),
    (StoreVerdict.WILL_NOT_START, {"start_failures": {"5.5.0": "x"}}, "WILL NOT START: a broker 5.5.0 fails at x"),
    (StoreVerdict.WOULD_LOSE, {"lost": 1}, "WOULD LOSE: 1 message would be lost"),
    (
        StoreVerdict.DAMAGED,
        {"damaged": 2, "missing_files": 1},
        "DAMAGED: 2 records unreadable or wrong; 1 log file missing",
    ),
    (StoreVerdict.INCONSISTENT, {"inconsistent": "index does not match"}, "INCONSISTENT: index does not match"),
    (
        StoreVerdict.NOT_FULLY_CHECKED,
        {"not_looked_at": (UNREAD,)},
        "NOT FULLY CHECKED: no problems in what was checked; not checked: index (index files)",
    ),
    (StoreVerdict.OK, {}, "OK: no problems found"),
]


@pytest.mark.parametrize(("verdict", "facts", "headline"), GRADES, ids=[grade[0].value for grade in GRADES])
def test_each_verdict_and_its_headline(verdict: StoreVerdict, facts: dict[str, Any], headline: str) -> None:
    assert Assessment(**facts).verdict is verdict
    assert Assessment(**facts).headline == headline


@pytest.mark.parametrize("at", range(len(GRADES)))
def test_the_worst_counts(at: int) -> None:
    facts = {name: value for _, graded, _ in GRADES[at:] for name, value in graded.items()}
    assert Assessment(**facts).verdict is GRADES[at][0]


def test_versions_that_fail_alike_are_named_together() -> None:
    assessment = Assessment(start_failures={"4.9.7": "x", "5.5.0": "x", "5.5.1": "y"})
    assert assessment.headline == "WILL NOT START: brokers (4.9.7, 5.5.0, 5.5.1) fail at x; y"


def test_what_was_not_looked_at_is_named_once() -> None:
    more = Assessment(not_looked_at=(UNREAD,)).with_coverage(UNREAD)
    assert more.as_json()["not_looked_at"] == [UNREAD.as_json()]
