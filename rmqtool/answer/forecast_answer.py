"""The answer of `forecast`: the results of brokers' starts, and their effects beside serving the log."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

from rmqtool.answer.answer import (
    NAMED_MAX,
    Answer,
    Assessment,
    NextStep,
    blocked_step,
    repair_step,
    undecoded_step,
    unknown_to_repair,
)
from rmqtool.answer.beside_log import BesideLog
from rmqtool.answer.exit_codes import ExitCode
from rmqtool.answer.opened_store import CommandLine, OpenedStore
from rmqtool.answer.presence import missing_log, reader_command, unreadable_files
from rmqtool.engine.queues.kinds import shown_topics
from rmqtool.engine.rules.topic_names import may_be_deleted
from rmqtool.findings.finding import REBUILD_COMPACTION, REBUILD_DELAYS, REBUILD_QUEUES, REBUILD_TIMER, StoreVerdict
from rmqtool.findings.registry import BY_ID
from rmqtool.forecast.load import do_topics_prevent_start
from rmqtool.forecast.options import forecast_options
from rmqtool.forecast.preflight import Preflight
from rmqtool.forecast.result import Forecast, side_harms
from rmqtool.forecast.unsimulated import unsimulated_settings
from rmqtool.repair.recover.log_steps import TAIL
from rmqtool.sides.kinds import FORECAST, side_kinds, unread_files
from rmqtool.sides.unread import ReadBy, UnreadFiles
from rmqtool.store.checkpoint_file import readable_checkpoint, shows_index
from rmqtool.store.config.config_json import ConfigState, named_topics
from rmqtool.store.config.config_kinds import TOPICS
from rmqtool.store.config.read_config import read_config
from rmqtool.store.databases.rocksdb import RocksFailure
from rmqtool.store.file_kinds import FileKind
from rmqtool.store.probe_lock import LOCK_NAME
from rmqtool.verify.files.lost_configs import lost_configs

_HELD: Final = (
    "the lock that a running broker holds; before that it recovers the store, and can delete files of the running one"
)
_BROKER_RUNS: Final = UnreadFiles(
    LOCK_NAME, FileKind.LOCK.value, "a broker runs and changes the store; stop it before another one is started"
)


@dataclass(frozen=True)
class PreflightLines:
    """Command lines about the store, with the version of --from where it was typed, and without."""

    own: CommandLine
    plain: CommandLine

    def for_command(self, command: str) -> CommandLine:
        """The one that suits a command, which may name a version itself."""
        return self.plain if "--broker-version" in command else self.own


def answer_of_forecasts(
    opened: OpenedStore,
    line: CommandLine,
    versions: Sequence[str],
    forecasts: Sequence[Forecast],
    effects: BesideLog,
    *,
    simulated: Sequence[Forecast],
    beside_verify: bool = False,
) -> Answer:
    """Answer of forecasts for the starts of these versions, chosen from those that could be simulated; the worst one
    counts. The answer of `verify`, which compares queues on both sides, may be shown too.
    """
    assessment = _assessment(opened, line, forecasts, effects)
    if beside_verify:
        of_verify = (FileKind.CONSUMEQUEUE_ROCKSDB.value, ReadBy.VERIFY)
        left = (files for files in assessment.not_looked_at if (files.kind, files.read_by) != of_verify)
        assessment = replace(assessment, not_looked_at=tuple(left))
    assessment = assessment.with_coverage(*_unsimulated_starts(versions, simulated))
    return _answer(assessment, _step(line, opened, assessment, forecasts, effects), forecasts)


def answer_of_preflight(
    opened: OpenedStore, lines: PreflightLines, checked: Preflight, forecasts: Sequence[Forecast], beside: BesideLog
) -> Answer:
    """Answer about the start of the later version, with the reasons for differences from that of the earlier one.

    Args:
        opened: the store as the later version looks at it.
    """
    judged = [forecast for forecast in forecasts if forecast.broker_version == checked.after]
    effects = replace(beside, in_use=False)  # for the broker is stopped before the upgrade
    assessment = _assessment(opened, lines.own, judged, effects)
    texts = [assessment.inconsistent, *(reason.sentence for reason in checked.harmful)]
    inconsistent = "; ".join(text for text in texts if text is not None)
    assessment = replace(assessment, inconsistent=inconsistent or None).with_coverage(*checked.not_looked_at)
    assessment = assessment.with_coverage(*_unsimulated_starts((checked.before, checked.after), forecasts))
    if beside.in_use:
        assessment = assessment.with_coverage(_BROKER_RUNS)

    reason = None
    is_harmed = assessment.verdict not in (StoreVerdict.OK, StoreVerdict.NOT_FULLY_CHECKED)
    if is_harmed and blocked_step(assessment) is None:
        reason = next((reason for reason in checked.reasons if not reason.is_harmless), None)  # which costs most
    if reason is None:
        step = _step(lines.plain, opened, assessment, judged, beside)
    elif reason.command is None:
        step = NextStep(None, reason.way_around, needs_decision=True)
    else:
        step = repair_step(lines.for_command(reason.command), reason.command, reason.way_around.rstrip(".:") + ":")
    return _answer(assessment, step, judged)


def _answer(assessment: Assessment, step: NextStep, forecasts: Sequence[Forecast]) -> Answer:
    is_readable = bool(forecasts) and assessment.verdict is not StoreVerdict.NOT_READABLE
    is_ok = assessment.verdict is StoreVerdict.OK
    code = ExitCode.FAILED if not is_readable else ExitCode.OK if is_ok else ExitCode.FINDINGS
    return Answer(assessment, step, code)


def _unsimulated_starts(versions: Sequence[str], forecasts: Sequence[Forecast]) -> tuple[UnreadFiles, ...]:
    known = {forecast.broker_version for forecast in forecasts}
    left = [version for version in versions if version not in known]
    return (UnreadFiles(f"start of {', '.join(left)}", "start", "is not simulated on this store"),) if left else ()


def _assessment(
    opened: OpenedStore, line: CommandLine, forecasts: Sequence[Forecast], effects: BesideLog
) -> Assessment:
    store, rules = opened.store, opened.rules
    inconsistent = [f"{finding.file}: {finding.message}" for finding in lost_configs(store, rules)]
    if _is_database_broken(opened) and (database := store.queue_database) is not None:
        text = f"{database.directory}: blocks of the queues in RocksDB are damaged: {database.reason}"
        inconsistent.append(f"{text}; a broker fails at them, some at the start")
    inconsistent += [f"timer: {effect['brokers']}" for effect in effects.timer[:1]]
    inconsistent += [f"delay {effect['message']}: {effect['brokers']}" for effect in effects.wrong_delays[:1]]
    inconsistent += [f"compacted topics: {effect['brokers']}" for effect in effects.compaction[:1]]
    inconsistent += side_harms(forecasts, has_index=shows_index(store, readable_checkpoint(store)))

    looked_at = side_kinds(store, rules, FORECAST)
    second = store.second_database if store.settings.queue_roles is not None else None
    if second is not None and second.is_read:
        looked_at |= {FileKind.CONSUMEQUEUE_ROCKSDB}
    not_looked_at = [*unread_files(store, looked_at), *unsimulated_settings(opened.conf, store)]
    counted_from = max((forecast.counted_from or 0 for forecast in forecasts), default=0)
    if counted_from > store.log_start:
        below = f"what lies below physical offset {counted_from} was not counted"
        not_looked_at.append(UnreadFiles("commitlog", FileKind.COMMITLOG.value, below))

    return Assessment(
        log_missing=missing_log(store),
        unreadable=tuple(map(str, unreadable_files(store))),
        reader=reader_command(store, line("forecast")),
        start_failures={
            one.broker_version: _HELD if effects.in_use else one.why_not or ""
            for one in forecasts
            if effects.in_use or not one.starts
        },
        lost=max((forecast.lost.messages + forecast.messages_without_log for forecast in forecasts), default=0),
        damaged=max((forecast.unnoticed_damage_count for forecast in forecasts), default=0),
        inconsistent="; ".join(inconsistent) or None,
        not_looked_at=tuple(not_looked_at),
    )


def _is_database_broken(opened: OpenedStore) -> bool:
    """True if a broker opens the database that has all queues, and cannot read all of it."""
    database = opened.store.queue_database if opened.rules.rocksdb_queues else None
    return database is not None and database.failure is RocksFailure.UNREADABLE


def _step(
    line: CommandLine, opened: OpenedStore, assessment: Assessment, forecasts: Sequence[Forecast], effects: BesideLog
) -> NextStep:
    """Next step before a broker is started; the first cause that explains the most counts."""
    store, rules = opened.store, opened.rules
    if effects.in_use:
        return NextStep(None, "stop the running broker before another is started, and look again then", True)
    settings = forecast_options(opened.conf).why_not or opened.unread_sizes
    if settings is not None and assessment.verdict is not StoreVerdict.OK and blocked_step(assessment) is None:
        return NextStep(None, f"correct the settings first: {settings}", needs_decision=True)

    lost = [finding for finding in lost_configs(store, rules) if finding.repair != REBUILD_DELAYS]
    repair_of_config = lost[0].repair if lost else None
    is_inconsistent = assessment.verdict is StoreVerdict.INCONSISTENT
    lacks_batch_topics = rules.batch_queues and bool(store.batch_queues)
    prevents_start = lacks_batch_topics or do_topics_prevent_start(store, rules)
    repair = "recover"
    if _is_database_broken(opened):
        repair = "recover" if store.has_abort else REBUILD_QUEUES
    elif any(map(_meets_damage, forecasts)):
        repair = "salvage"
    elif (repair_of_effects := effects.repair(opened)) is not None and not assessment.lost:
        is_timer, is_compaction = repair_of_effects == REBUILD_TIMER, repair_of_effects == REBUILD_COMPACTION
        unknown = unknown_to_repair(opened, timer=is_timer, compaction=is_compaction)
        return step_after_forecast(line, assessment, repair_of_effects, tuple(unknown))
    elif effects.missing_levels and not (assessment.lost or lost):
        remedy = BY_ID[effects.missing_levels[0]["id"]].remedy
        return NextStep(None, f"correct the settings first: {remedy}", needs_decision=True)
    elif repair_of_config is not None and (is_inconsistent or prevents_start):
        return step_after_forecast(line, assessment, repair_of_config)
    elif is_inconsistent and lost:
        return NextStep(None, f"{lost[0].file}: {BY_ID[lost[0].id].remedy}", needs_decision=True)
    elif store.queue_kind == "rocksdb" and store.queues and assessment.verdict is StoreVerdict.WOULD_LOSE:
        return repair_step(line, "convert --queues rocksdb", "convert the consume queues before the broker is started:")
    elif doubtful := _doubtful_topics(opened, forecasts):
        if repair_of_config is not None:
            return step_after_forecast(line, assessment, repair_of_config)
        if not store.has_abort and _awaits_decision(opened, doubtful):
            commands = " or ".join(line(f"rebuild --topic {shlex.quote(topic)}") for topic in doubtful[:NAMED_MAX])
            what = "it was deleted: its" if len(doubtful) == 1 else "they were deleted: their"
            named = f"{', '.join(doubtful[:NAMED_MAX])}{', ...' if len(doubtful) > NAMED_MAX else ''}"
            text = f"{named}: nothing shows whether {what} messages stay in the log until they expire"
            return NextStep(None, f"{text}, or come back with {commands}", needs_decision=True)

    lacks_queues = not store.queues and store.queue_kind == "file"
    unknown = unknown_to_repair(opened, queues=lacks_queues, index=not store.index_files)
    return step_after_forecast(line, assessment, repair, tuple(unknown))


def step_after_forecast(
    line: CommandLine, assessment: Assessment, repair: str, unknown: Sequence[str] = ()
) -> NextStep:
    """Next step before a start, where the repair keeps messages that it would lose; `unknown` as of `repair_step`."""
    if (step := blocked_step(assessment)) is not None:
        return step
    if assessment.verdict is StoreVerdict.OK:
        return NextStep(None, "nothing to do; the broker can be started")
    if assessment.verdict is StoreVerdict.NOT_FULLY_CHECKED:
        return undecoded_step(assessment, line)
    return repair_step(line, repair, "repair the store before the broker is started:", unknown)


def _doubtful_topics(opened: OpenedStore, forecasts: Sequence[Forecast]) -> list[str]:
    """Topics of all messages that would be lost, if somebody may have deleted each of them; else none."""
    if any(forecast.messages_without_log for forecast in forecasts):
        return []
    topics = sorted({topic for forecast in forecasts for topic in forecast.lost.by_topic})
    shown = shown_topics(opened.store) if topics else None
    return topics if all(may_be_deleted(topic, shown) for topic in topics) else []


def _awaits_decision(opened: OpenedStore, doubtful: Sequence[str]) -> bool:
    """True if no repair of the topics helps before a person decides about those that may have been deleted."""
    config = read_config(opened.store.view, TOPICS)
    if config.is_backup:
        return not named_topics(config).isdisjoint(doubtful)
    return config.state in (ConfigState.READ, ConfigState.ABSENT)


def _meets_damage(forecast: Forecast) -> bool:
    """True if damage is inside the log, where the start meets it or skips it."""
    stop = forecast.stops_at
    is_harmed = forecast.lost.messages > 0 or not forecast.starts
    if stop is not None and stop.finding not in TAIL:
        is_harmed |= any(queue.offsets_repeat for queue in forecast.queues)
    cuts = stop is not None and stop.finding is not None and is_harmed
    return cuts or forecast.unnoticed_damage_count > 0 or forecast.messages_without_log > 0
