"""Effects of a start beside serving the log: on timers, delays and compacted topics, and on a running broker."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Self

from rmqtool.answer.opened_store import OpenedStore
from rmqtool.findings.account import Account
from rmqtool.findings.finding import REBUILD_COMPACTION, REBUILD_DELAYS, REBUILD_TIMER, Finding, Severity
from rmqtool.findings.registry import BY_ID
from rmqtool.formats.tags import parse_delay_levels
from rmqtool.sides.compaction import compaction_findings
from rmqtool.sides.delays import LEVEL_MISSING, delay_findings
from rmqtool.sides.timer.check import timer_findings


@dataclass(frozen=True)
class BesideLog:
    """Effects of a start on messages that are not served from the commit log at once, kind by kind."""

    timer: tuple[dict[str, Any], ...] = ()
    delays: tuple[dict[str, Any], ...] = ()
    compaction: tuple[dict[str, Any], ...] = ()
    in_use: bool = False
    """True if a broker runs on the store, to which another start does harm."""

    @classmethod
    def of(cls, opened: OpenedStore) -> Self:
        levels, level_count = opened.conf.delay_levels if opened.conf is not None else None, None
        if levels is not None:
            with suppress(ValueError):  # no broker starts with it, which the forecast says
                level_count = len(parse_delay_levels(levels))
        of_delays = sorted(delay_findings(opened.store, opened.rules, level_count), key=lambda finding: finding.place)
        delays = [
            {
                "id": finding.id,
                "severity": finding.severity.value,
                "level": (finding.queue_id or 0) + 1,
                "count": finding.count,
                "message": finding.message,
                "brokers": _brokers(finding.id),
            }
            for finding in of_delays
        ]
        timer = tuple(_effects(timer_findings(opened.store, opened.rules, Account())))
        compaction = tuple(_effects(compaction_findings(opened.store, opened.rules, Account())))
        return cls(timer, tuple(delays), compaction, opened.in_use)

    @property
    def wrong_delays(self) -> list[dict[str, Any]]:
        """Those of delay levels that are more than a note."""
        return [effect for effect in self.delays if effect["severity"] != Severity.NOTE.value]

    def repair(self, opened: OpenedStore) -> str | None:
        """The command that repairs it, once nothing else is wrong."""
        if opened.store.has_abort:
            return None  # recover does all of it
        if self.timer:
            return REBUILD_TIMER
        is_repairable = any(effect["id"] != LEVEL_MISSING for effect in self.wrong_delays)
        return REBUILD_DELAYS if is_repairable else REBUILD_COMPACTION if self.compaction else None

    @property
    def missing_levels(self) -> list[dict[str, Any]]:
        """Delay levels that the configuration does not have, with messages to deliver."""
        return [effect for effect in self.delays if effect["id"] == LEVEL_MISSING]


def _effects(findings: Iterable[Finding]) -> Iterator[dict[str, Any]]:
    """Damage and its effect on a broker, kind by kind."""
    of_kinds: dict[str, list[Finding]] = {}
    for finding in sorted(findings, key=lambda finding: finding.place):
        if finding.severity is not Severity.NOTE:
            of_kinds.setdefault(finding.id, []).append(finding)
    for kind, of_kind in of_kinds.items():
        count = sum(finding.count for finding in of_kind)
        yield {"id": kind, "count": count, "message": of_kind[0].message, "brokers": _brokers(kind)}


def _brokers(kind: str) -> str:
    return "; ".join(text for _, text in BY_ID[kind].brokers)
