"""The part of `rmqtool forecast` that goes from one broker version to another: which ones, and what comes of it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from rmqtool.commands.options.store import OpenedStore
from rmqtool.engine.rules.broker_rules import BrokerRules
from rmqtool.engine.rules.versions import NEWEST, SUPPORTED, nearest_releases, rules_for
from rmqtool.errors import UsageError
from rmqtool.forecast.preflight import Preflight
from rmqtool.verdict.command_line import CommandLine
from rmqtool.verdict.next_step import NextStep, blocked_step, repair_step
from rmqtool.verdict.verdict import Assessment, StoreVerdict


@dataclass(frozen=True)
class AskedVersions:
    """What was typed for --from and --to; None where nothing was."""

    before: str | None
    after: str | None

    @property
    def are_there(self) -> bool:
        """Whether a preflight was asked for."""
        return self.before is not None or self.after is not None

    def demand_usable(self, broker_version: str | None) -> None:
        """Refuse what cannot work, before the store is opened.

        Raises:
            UsageError: a version is none that rmqtool knows, or the options exclude each other.
        """
        if not self.are_there:
            return
        if broker_version is not None:
            raise UsageError("--from and --to name the versions: leave --broker-version out")
        for option, version in (("--from", self.before), ("--to", self.after)):
            if version is not None and version not in SUPPORTED:
                raise UsageError(f"{option} {version}: {unknown_release(version)}")
        if self.before == (self.after or NEWEST):
            raise UsageError(f"--from and --to are both {self.before}: nothing changes")

    def pair(self, opened: OpenedStore) -> tuple[BrokerRules, BrokerRules]:
        """The rules of both versions; that of --from is the store's own where it was left out.

        Raises:
            UsageError: nothing shows the store's version, or it is that of --to.
        """
        after = rules_for(self.after or NEWEST)
        if self.before is None and not opened.is_version_known:
            raise UsageError("nothing in the store shows its broker version: pass --from X.Y.Z")
        before = rules_for(self.before or opened.rules.version)
        if before.version == after.version:
            raise UsageError(
                f"the store fits {opened.inferred}, so --from is {before.version}, as --to is: nothing changes; pass "
                "another version"
            )
        return before, after


def unknown_release(version: str) -> str:
    """That there are no rules of a release, with the nearest ones, as a sentence.

    Raises:
        UsageError: the text is no version.
    """
    nearest = nearest_releases(version)
    ones = "one is" if len(nearest) == 1 else "ones are"
    return f"rmqtool does not know how this release differs; the nearest {ones} {' and '.join(nearest)}"


@dataclass(frozen=True)
class PreflightLines:
    """Command lines about the store, with the version of --from where it was typed, and without."""

    own: CommandLine
    plain: CommandLine

    def for_command(self, command: str) -> CommandLine:
        """The one that suits a command, which may name a version itself."""
        return self.plain if "--broker-version" in command else self.own


def with_preflight(assessment: Assessment, checked: Preflight) -> Assessment:
    """The assessment of the later version's start, with what its forecast does not count."""
    texts = [assessment.inconsistent, *(reason.sentence for reason in checked.harmful)]
    inconsistent = "; ".join(text for text in texts if text is not None)
    return replace(assessment, inconsistent=inconsistent or None).with_coverage(*checked.not_looked_at)


def step_after_preflight(lines: PreflightLines, assessment: Assessment, checked: Preflight) -> NextStep | None:
    """What the reason that costs most asks for; None where no reason costs anything, or nothing can be judged."""
    if assessment.verdict in (StoreVerdict.OK, StoreVerdict.NOT_FULLY_CHECKED) or blocked_step(assessment) is not None:
        return None
    reason = next((reason for reason in checked.reasons if not reason.is_harmless), None)
    if reason is None:
        return None
    if reason.command is None:
        return NextStep(None, reason.way_around, needs_decision=True)
    return repair_step(lines.for_command(reason.command), reason.command, reason.way_around.rstrip(".:") + ":")


def preflight_json(lines: PreflightLines, checked: Preflight, inferred: str | None) -> dict[str, Any]:
    """The pair of versions and the changes of the JSON contract, with commands as they are typed."""
    changes = checked.changes_json()
    for row in changes:
        if row["command"] is not None:
            row["command"] = lines.for_command(row["command"])(row["command"])
    pair = {"store_fits": inferred, "from": checked.before, "to": checked.after}
    return {"preflight": pair, "changes": changes}
