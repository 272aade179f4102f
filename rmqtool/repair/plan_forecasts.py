"""Completes a plan: what is lost by it, and what every broker version would do before and after it."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import Final

from rmqtool.engine.rules.versions import EXAMINED, BrokerRules, rules_for
from rmqtool.engine.segments.open_files import ReadCache
from rmqtool.errors import RmqtoolError
from rmqtool.forecast.forecast import SharedStarts, forecast_store, scan_begin
from rmqtool.forecast.options import COUNT_WHOLE_LOG_UP_TO, ForecastOptions
from rmqtool.memory import THREAD_BYTES, memory_budget
from rmqtool.repair.machine.plan import ForecastAfter, Loss, Plan
from rmqtool.repair.missing_log import gone_messages, unmounted_text
from rmqtool.store.directory import Store
from rmqtool.store.unproven_sizes import size_assumptions

COUNTED_WHOLE_MAX: Final = 256 << 20
"""Bytes of a log up to which losses are counted over all of it for every version, and not for the chosen one alone."""


def with_forecasts(
    plan: Plan,
    store: Store,
    after: Store,
    rules: BrokerRules,
    options: ForecastOptions,
    begin: int | None,
    on_note: Callable[[str], None],
) -> Plan:
    """A plan with its losses, and forecasts of every examined version.

    Args:
        store, after: before the plan and as it would leave it.
        rules: of the version that the repair is for.
        begin: physical offset from which on the store was looked at; losses are counted from there. None: all of it.
        on_note: is given a sentence where a forecast cannot be made.
    """
    versions = dict.fromkeys((*EXAMINED, rules.version))
    whole = sum(segment.entry.allocated_bytes for segment in after.commitlog) <= COUNTED_WHOLE_MAX
    forecaster = _Forecaster(rules, options, begin, on_note)
    shared = SharedStarts(ReadCache(notes=None if options.digest is None else options.digest.notes))
    with ThreadPoolExecutor(memory_budget().threads(os.cpu_count() or 1, THREAD_BYTES)) as pool:
        now = pool.submit(forecaster.forecast, store, rules, shared=SharedStarts(shared.reads, shared.clean))
        forecasts = pool.map(
            lambda version: forecaster.forecast(
                after, rules_for(version), whole=whole or version == rules.version, shared=shared
            ),
            versions,
        )
        forecasts_by_version = dict(zip(versions, forecasts, strict=True))
    forecasts_after = {version: forecast for version, forecast in forecasts_by_version.items() if forecast is not None}
    lacking = [f"what a broker {version} would do afterwards" for version in versions if version not in forecasts_after]
    if not whole and begin is None:
        lacking.append("what other versions would lose in the files that their start does not read")
    gone = gone_messages(store, after, plan.steps)
    unmounted = (unmounted_text(store, gone.without_log),) if gone.without_log else ()
    return replace(
        plan,
        loss=plan.loss + gone,
        kept_beyond_broker=_kept(now.result(), forecasts_after.get(rules.version), plan.loss),
        not_looked_at=(*unmounted, *plan.not_looked_at, *size_assumptions(store), *lacking),
        forecast_now=now.result(),
        forecast_after=forecasts_after,
    )


@dataclass(frozen=True)
class _Forecaster:
    """Forecasts starts of one plan's store for any version; see `with_forecasts`."""

    rules: BrokerRules
    options: ForecastOptions
    begin: int | None
    on_note: Callable[[str], None]

    def forecast(
        self, store: Store, rules: BrokerRules, *, whole: bool = True, shared: SharedStarts | None = None
    ) -> ForecastAfter | None:
        """The forecast of a version; None where it cannot be made, or would read much more than was looked at."""
        options = replace(
            self.options, count_whole_log=None if whole else False, count_from=self.begin, count_index=False
        )
        try:
            if self.begin is not None and rules.version != self.rules.version:
                starts_at = scan_begin(store, rules, options)
                read = (segment for segment in store.commitlog if starts_at is not None and starts_at <= segment.start)
                if sum(segment.entry.allocated_bytes for segment in read) > COUNT_WHOLE_LOG_UP_TO:
                    self.on_note(f"no forecast for {rules.version}: it would read the commit log from {starts_at}")
                    return None
            forecast = forecast_store(store, rules, options, shared)
        except RmqtoolError as error:
            self.on_note(f"no forecast for {rules.version}: {error}")
            return None
        return ForecastAfter(forecast.starts, forecast.lost.messages, forecast.lost.by_topic, forecast.why_not)


def _kept(now: ForecastAfter | None, after: ForecastAfter | None, loss: Loss) -> dict[str, int]:
    """Messages by topic that a start now would lose, and that are served after the repair."""
    if now is None or after is None:
        return {}
    kept = Counter(now.lost_by_topic)
    kept.subtract(after.lost_by_topic)
    kept.subtract(loss.by_topic)
    return {topic: count for topic, count in sorted(kept.items()) if count > 0}
