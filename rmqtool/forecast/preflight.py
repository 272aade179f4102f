"""What changes, and why, when a store goes from one broker version to another: reasons, each with what it costs.

What a reason costs is the difference between two forecasts: the start of the later broker, and the same start if it
were like the earlier broker in this alone.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

from rmqtool.engine.reading.named_sizes import SIZES, renamed_sizes
from rmqtool.engine.rules.broker_rules import BrokerRules
from rmqtool.engine.rules.changes import VERSION_CHANGES, ChangeHarm, VersionChange
from rmqtool.engine.rules.settings import read_settings
from rmqtool.engine.rules.versions import NEWEST, rules_for
from rmqtool.engine.segments.open_files import ReadCache
from rmqtool.errors import UnsupportedError
from rmqtool.forecast.forecast import SharedStarts, forecast_store
from rmqtool.forecast.options import COUNT_WHOLE_LOG_UP_TO, ForecastOptions
from rmqtool.forecast.result import Forecast
from rmqtool.forecast.version_features import NOTHING, FeatureCount, FeatureSearch, count_features
from rmqtool.scan.log import ScanOptions
from rmqtool.sides.unread import UnreadFiles
from rmqtool.store.config.broker_conf import BrokerConf
from rmqtool.store.directory import Segment, Store

SEVERAL: Final = "start.several-differences"
OTHER_SIZES: Final = "settings.other-sizes"


@dataclass(frozen=True)
class ChangeReason:
    """One reason why the start of the later broker differs.

    Attributes:
        feature: what one of the counted things is called; None where nothing is counted.
        count: None where that could not be counted.
        amount: both as a part of a sentence.
        file, physical_offset: of the first one.
        harm: what it means beside the losses: none, undelivered, not-served or misread.
        why: what the later broker does, as a sentence.
        lost_messages: that this alone loses.
        prevents_start: whether the broker would start without this.
        unindexed_messages: that cannot be found by key because of this alone.
        way_around: what to do, as a sentence; `command` is typed after `rmqtool`.
    """

    id: str
    feature: str | None
    count: int | None
    amount: str | None
    file: str | None
    physical_offset: int | None
    harm: str
    why: str
    lost_messages: int
    prevents_start: bool
    unindexed_messages: int
    way_around: str
    command: str | None

    @property
    def sentence(self) -> str:
        """What there is, and what the later broker does with it."""
        return self.why if self.amount is None else f"{self.amount}: {self.why}"

    @property
    def is_harmless(self) -> bool:
        """Whether no message is affected, as far as that was counted."""
        return self.harm == ChangeHarm.MEASURED.value and not (self.lost_messages or self.prevents_start)


@dataclass(frozen=True)
class Preflight:
    """The reasons, those that cost most first.

    Attributes:
        not_looked_at: what could not be counted.
    """

    before: str
    after: str
    reasons: tuple[ChangeReason, ...]
    not_looked_at: tuple[UnreadFiles, ...] = ()

    @property
    def harmful(self) -> tuple[ChangeReason, ...]:
        """The reasons that affect messages beside what the forecast counts."""
        return tuple(reason for reason in self.reasons if reason.harm != ChangeHarm.MEASURED.value)

    def changes_json(self) -> list[dict[str, Any]]:
        """The reasons in the JSON contract."""
        rows = []
        for reason in self.reasons:
            row = dict(vars(reason))
            file, physical_offset = row.pop("file"), row.pop("physical_offset")
            row["first"] = None if file is None else {"file": file, "physical_offset": physical_offset}
            rows.append(row)
        return rows


def preflight(
    store: Store,
    before: BrokerRules,
    after: BrokerRules,
    options: ForecastOptions,
    forecasts: Mapping[str, Forecast],
    conf: BrokerConf | None = None,
) -> Preflight:
    """Tell what changes, and why.

    Args:
        store: as the later broker looks at it.
        before, after: the rules of the broker that the store comes from, and of the one that is to start on it.
        options: what the later broker's configuration says.
        forecasts: of the two versions, by version, as far as they could be made.
        conf: the broker's properties file, as the later one reads it.

    Raises:
        UnreadableError: a file that is needed cannot be read.
    """
    concerned = [change for change in VERSION_CHANGES if change.concerns(before, after)]
    search = FeatureSearch(store, before, after, _counted_segments(store, forecasts))
    scan = ScanOptions(options.delays_ms, digest=options.digest)
    counts = count_features(search, {change.feature for change in concerned if change.feature is not None}, scan)
    starts = _Starts(store, before, after, options, forecasts.get(after.version))
    reasons = [] if conf is None else list(starts.reasons_of_settings(conf))
    for change in concerned:
        count = counts[change.feature] if change.feature is not None else None
        if count is not None and not count.is_there:
            continue
        reason = starts.reason(change, count or NOTHING)
        if count is not None or reason.lost_messages or reason.prevents_start:
            reasons.append(reason)
    if starts.is_worse(forecasts.get(before.version)) and not any(
        reason.lost_messages or reason.prevents_start for reason in reasons
    ):
        reasons.append(_several(after))
    reasons.sort(key=lambda reason: (not reason.prevents_start, -reason.lost_messages, reason.is_harmless))
    problems = tuple(
        UnreadFiles(count.file or "commitlog", feature.noun, count.problem, count.read_by)
        for feature, count in counts.items()
        if count.problem is not None
    )
    return Preflight(before.version, after.version, tuple(reasons), problems)


def _counted_segments(store: Store, forecasts: Mapping[str, Forecast]) -> tuple[Segment, ...]:
    """The files of the log over which the forecasts count losses, and of a small log all."""
    segments = store.loadable_log
    if sum(segment.entry.allocated_bytes for segment in segments) <= COUNT_WHOLE_LOG_UP_TO:
        return segments
    begins = [forecast.counted_from for forecast in forecasts.values() if forecast.counted_from is not None]
    return tuple(segment for segment in segments if segment.start >= min(begins, default=0))


class _Starts:
    """Starts of the later broker as it is, and as it would be if it were like others in one thing."""

    def __init__(
        self, store: Store, before: BrokerRules, after: BrokerRules, options: ForecastOptions, start: Forecast | None
    ) -> None:
        self._store = store
        self._before = before
        self._after = after
        self._options = options
        self._start = start
        self._reads = ReadCache()

    def reason(self, change: VersionChange, count: FeatureCount) -> ChangeReason:
        """The reason with what it costs."""
        lost, prevents, unindexed = self._cost(self._without(change))
        command = change.command.format(to=self._after.version) if change.command is not None else None
        return ChangeReason(
            change.id,
            change.feature.noun if change.feature is not None else None,
            count.count if change.feature is not None else None,
            change.feature.counted(count.count) if change.feature is not None else None,
            count.file,
            count.physical_offset,
            change.harm.value,
            change.text.format(to=self._after.version),
            lost,
            prevents,
            unindexed,
            change.way_around,
            command,
        )

    def reasons_of_settings(self, conf: BrokerConf) -> Iterator[ChangeReason]:
        """What the later broker reads otherwise, or not at all, in the properties file of the earlier one."""
        was, settings = conf.read_as(read_settings(self._before)).settings(), conf.settings()
        fields = [
            name
            for name in SIZES
            if None is not getattr(was, name) != getattr(settings, name) == getattr(self._store.settings, name)
        ]
        if not fields:
            return
        sizes = {name: getattr(was, name) for name in fields}
        like_before = replace(self._store, settings=replace(self._store.settings, **sizes))
        unread = renamed_sizes(fields, conf, self._after)
        lost, prevents, unindexed = self._cost(forecast_store(like_before, self._after, self._options))
        yield ChangeReason(
            OTHER_SIZES, None, None, None, conf.path, None, ChangeHarm.MEASURED.value, unread.why, lost, prevents,
            unindexed, f"{unread.way_around[0].upper()}{unread.way_around[1:]}.", None,
        )  # fmt: skip

    def _cost(self, without: Forecast | None) -> tuple[int, bool, int]:
        """What is lost, whether the start is prevented, and what is not indexed, only because of one difference."""
        start = self._start
        if start is None or without is None:
            return 0, False, 0
        if not (start.starts and without.starts):
            return 0, without.starts and not start.starts, 0
        unindexed = start.unindexed_messages - without.unindexed_messages
        return max(0, _lost(start) - _lost(without)), False, max(0, unindexed)

    def is_worse(self, earlier: Forecast | None) -> bool:
        """Whether the later broker loses more than the earlier one, or does not start where that does."""
        if self._start is None or earlier is None or not earlier.starts:
            return False
        return not self._start.starts or _lost(self._start) > _lost(earlier)

    def _without(self, change: VersionChange) -> Forecast | None:
        """The start of a broker that differs in this alone; None where the start as it is costs nothing."""
        start = self._start
        if start is None or (start.starts and not _lost(start) and not start.unindexed_messages):
            return None
        like = {name: getattr(self._before, name) for name in change.rules}
        if all(getattr(self._after, name) == value for name, value in like.items()):
            like = {name: getattr(rules_for(NEWEST), name) for name in change.rules}
        # What is remembered of a start goes by the version's name, which is not the same broker's any more.
        name = f"{self._after.version} without {change.id}"
        rules = replace(self._after, version=name, **like)
        try:
            return forecast_store(self._store, rules, replace(self._options, digest=None), SharedStarts(self._reads))
        except UnsupportedError:
            return None


def _lost(forecast: Forecast) -> int:
    return forecast.lost.messages + forecast.messages_without_log


def _several(after: BrokerRules) -> ChangeReason:
    text = f"{after.version} differs in several things that lose messages only together"
    around = "Repair the store before the change."
    command = f"recover --broker-version {after.version}"
    return ChangeReason(
        SEVERAL, None, None, None, None, None, ChangeHarm.MEASURED.value, text, 0, False, 0, around, command
    )
