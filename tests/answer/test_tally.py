"""Findings come to one command that repairs most, and to one sentence of what does not match."""

from __future__ import annotations

import pytest

from rmqtool.answer.answer import FindingTally
from rmqtool.findings.finding import Finding, Severity


def tally_of(*findings: tuple[str, str, str | None]) -> FindingTally:
    tally = FindingTally()
    for severity, name, repair in findings:
        tally.add(Finding(name, Severity(severity), "file", "text", repair=repair, count=2), f"remedy of {name}")
    return tally


@pytest.mark.parametrize(
    ("repairs", "command"),
    [
        ((), None),
        (("rebuild --index",), "rebuild --index"),
        (("rebuild --queues", "rebuild --index"), "rebuild --index --queues"),
        (("rebuild --queues", "recover"), "recover"),
        (("recover", "salvage", "rebuild"), "salvage"),
        (("salvage", "undo"), "undo"),
        (("rebuild --timer",), "rebuild --timer"),
        (("rebuild --timer", "rebuild --queues"), "rebuild --queues"),
        (("rebuild --timer", "rebuild --delay-offsets"), "rebuild --delay-offsets"),
    ],
)
def test_the_command_that_repairs_most(repairs: tuple[str, ...], command: str | None) -> None:
    assert tally_of(*(("warning", f"a.{repair}", repair) for repair in repairs)).repair() == command


def test_a_store_that_must_not_look_stopped_needs_no_repair_for_abort_alone() -> None:
    crashed = tally_of(("warning", "store.abort-present", "recover"))
    assert crashed.repair() == "recover"
    assert crashed.repair(abort_stays=True) is None
    more = tally_of(("warning", "store.abort-present", "recover"), ("warning", "index.bad-header", "recover"))
    assert more.repair(abort_stays=True) == "recover"


def test_notes_count_for_nothing() -> None:
    tally = tally_of(("note", "commitlog.tombstone", "salvage"))
    assert (tally.repair(), tally.damaged, tally.inconsistent(is_log_decoded=True)) == (None, 0, None)


def test_damage_of_records_and_missing_files_are_counted_apart() -> None:
    tally = tally_of(
        ("error", "commitlog.body-crc-mismatch", "salvage"),
        ("error", "dledger.bad-entry", None),
        ("error", "commitlog.missing-file", None),
        ("error", "commitlog.wrong-file-size", None),
    )
    assert (tally.damaged, tally.missing_files) == (4, 2)
    assert tally.is_about("commitlog")
    assert not tally.is_about("index")
    assert tally.remedy == "dledger.bad-entry: remedy of dledger.bad-entry"


def test_what_does_not_match_is_one_sentence() -> None:
    tally = tally_of(
        ("warning", "store.abort-present", None),
        ("warning", "index.wrong-time", None),
        ("warning", "consumequeue.gap", None),
        ("warning", "config.topic-missing", None),
    )
    text = "consumequeue, index do not match the commit log (4); findings: 2 in config"
    assert tally.inconsistent(is_log_decoded=False) == text
    assert tally.inconsistent(is_log_decoded=True) == f"{text}; the broker did not stop cleanly"


def test_a_tail_that_came_back_leads_to_the_command_that_cuts_it() -> None:
    tally = tally_of(("warning", "commitlog.resurrected-tail", "recover --cut-at 100"))
    assert (tally.cut, tally.came_back, tally.repair()) == ("recover --cut-at 100", 2, None)
    assert "a truncated tail came back" in (tally.inconsistent(is_log_decoded=True) or "")
