"""`rmqtool forecast`: what a broker would do at its next start. What that is is decided in `forecast`."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Hashable, Sequence
from dataclasses import replace
from typing import Annotated, Any, Final

import typer

from rmqtool.commands.exit_codes import ExitCode
from rmqtool.commands.messages import Messages, messages_of
from rmqtool.commands.options.bundle import demand_as_recorded, recorded_of, store_of_bundle
from rmqtool.commands.options.store import (
    FromVersionOption,
    ObjectFormatOption,
    OpenedStore,
    ReadStore,
    StoreOptions,
    ToVersionOption,
    VersionsOption,
    command_line,
    open_store,
)
from rmqtool.commands.options.store_parameters import with_store_options
from rmqtool.commands.reading.beside_log import BesideLog
from rmqtool.commands.reading.judgement import unknown_to_repair
from rmqtool.commands.reading.preflight import (
    AskedVersions,
    PreflightLines,
    preflight_json,
    step_after_preflight,
    with_preflight,
)
from rmqtool.commands.screen import screen
from rmqtool.engine.queues.shown_topics import shown_topics
from rmqtool.engine.rules.broker_rules import BrokerRules
from rmqtool.engine.rules.topic_names import may_be_deleted
from rmqtool.engine.rules.versions import EXAMINED, rules_for
from rmqtool.errors import UnreadableError, UnsupportedError
from rmqtool.findings.finding import (
    REBUILD_COMPACTION,
    REBUILD_DELAYS,
    REBUILD_QUEUES,
    REBUILD_TIMER,
)
from rmqtool.findings.registry import BY_ID
from rmqtool.forecast.forecast import SharedStarts, forecast_store
from rmqtool.forecast.load import do_topics_prevent_start
from rmqtool.forecast.options import forecast_options
from rmqtool.forecast.preflight import preflight
from rmqtool.forecast.result import Forecast, side_harms
from rmqtool.forecast.unsimulated import unsimulated_settings
from rmqtool.repair.recover.log_steps import TAIL
from rmqtool.report.screens.forecast_screen import comparison_lines, forecast_lines
from rmqtool.report.writers import ObjectFormat, OutputFormat, json_text
from rmqtool.scan.log_digest import LogDigest
from rmqtool.sides.kinds import FORECAST, side_kinds, unread_files
from rmqtool.sides.unread import UnreadFiles
from rmqtool.store.checkpoint_file import readable_checkpoint, shows_index
from rmqtool.store.config.config_json import TOPICS, ConfigFile, ConfigState, named_topics
from rmqtool.store.config.read_config import read_config
from rmqtool.store.databases.queue_database import QueueDatabase
from rmqtool.store.databases.rocksdb import RocksFailure
from rmqtool.store.directory import Store
from rmqtool.store.file_kinds import FileKind
from rmqtool.store.probe_lock import LOCK_NAME
from rmqtool.verdict.command_line import CommandLine
from rmqtool.verdict.next_step import NextStep, blocked_step, repair_step, step_after_forecast
from rmqtool.verdict.presence import denied_files, missing_log, reader_command, unreadable_files
from rmqtool.verdict.verdict import NAMED_MAX, Assessment, StoreVerdict
from rmqtool.verify.files.lost_configs import lost_configs

ALL: Final = "all"
_HELD: Final = (
    "the lock that a running broker holds; before that it recovers the store, and can delete files of the running one"
)
_BROKER_RUNS: Final = UnreadFiles(
    LOCK_NAME, FileKind.LOCK.value, "a broker runs and changes the store; stop it before another one is started"
)


@with_store_options("broker_version")
def forecast(
    context: typer.Context,
    store: ReadStore,
    *,
    store_options: StoreOptions,
    broker_version: VersionsOption = None,
    changed: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            metavar="KEY=VALUE",
            help="Forecast as if the broker had this setting (storeType, ...); repeatable.",
        ),
    ] = None,
    before: FromVersionOption = None,
    after: ToVersionOption = None,
    form: ObjectFormatOption = ObjectFormat.TABLE,
) -> None:
    """Show what a broker would do at its next start, and which messages it would lose.

    Nothing is changed. With --broker-version all, or if the versions that fit the store would do different things,
    several are shown side by side, and the worst of them is the verdict. With --from or --to, the command says what
    changes, and why, between two versions. The exit code is 0 only if the broker (of --to) starts, loses nothing and
    serves no damage; else 3.

    Example: rmqtool forecast /home/rocketmq/store --broker-version 5.3.3
    """
    output = OutputFormat(form)
    messages = messages_of(context)
    asked = AskedVersions(before, after)
    asked.demand_usable(broker_version)
    wants_all = broker_version == ALL
    store = store_of_bundle(store, context)
    is_plain = store_options.are_empty and broker_version is None and not (changed or asked.are_there)
    recorded = recorded_of(store, messages, asks_more=not is_plain)
    if recorded is not None:
        answer = recorded.forecast
        if answer.is_cut:
            messages.warn("only some of the queues, topics and files of the recorded answer are in the bundle")
        _write(answer.forecasts, answer.ending(), output, all_rows=messages.verbose, is_one=answer.is_one)
        raise typer.Exit(answer.exit_code)
    chosen_version = before if asked.are_there else None if wants_all else broker_version
    store_options = replace(store_options, broker_version=chosen_version, properties=tuple(changed or ()))
    opened = open_store(store, store_options)
    if not wants_all:
        opened.tell(messages)
    line = command_line(store, store_options)
    if asked.are_there:
        lines = PreflightLines(line, command_line(store, replace(store_options, broker_version=None)))
        verdict = _show_preflight(opened, lines, asked, output, messages)
    else:
        versions = EXAMINED if wants_all else opened.possible_versions
        forecasts = forecasts_of(opened, versions, messages)
        not_simulated = not_simulated_of(versions, forecasts)
        if not wants_all and opened.is_version_known:
            forecasts = _told_apart(forecasts, opened.rules.version)
        is_one = len(forecasts) == 1 and not wants_all
        effects = BesideLog.of(opened)
        assessment = forecast_assessment(opened, line, forecasts, effects).with_coverage(*not_simulated)
        step = step_after(line, opened, assessment, forecasts, effects)
        ending = {**assessment.as_json(), **step.as_json(), **vars(effects)}
        if is_plain:
            demand_as_recorded(store, ending, forecasts)
        _write(forecasts, ending, output, all_rows=messages.verbose, is_one=is_one)
        verdict = assessment.verdict if forecasts else StoreVerdict.NOT_READABLE
    raise typer.Exit(exit_code_of(verdict))


def _told_apart(forecasts: list[Forecast], version: str) -> list[Forecast]:
    """Forecasts of all releases that fit a store, if they come to different things; else that of one version."""
    outcomes = {
        (
            forecast.starts,
            forecast.lost.messages,
            forecast.messages_without_log,
            forecast.unnoticed_damage_count,
            forecast.misplaces_new_messages,
            sum(queue.max_queue_offset - queue.min_queue_offset for queue in forecast.queues),
        )
        for forecast in forecasts
    }
    same = [forecast for forecast in forecasts if forecast.broker_version == version]
    return same if len(outcomes) == 1 and same else forecasts


def exit_code_of(verdict: StoreVerdict) -> ExitCode:
    """How a run of forecast ends."""
    if verdict is StoreVerdict.NOT_READABLE:
        return ExitCode.FAILED
    return ExitCode.OK if verdict is StoreVerdict.OK else ExitCode.FINDINGS


def _show_preflight(
    opened: OpenedStore, lines: PreflightLines, asked: AskedVersions, output: OutputFormat, messages: Messages
) -> StoreVerdict:
    """Forecast both versions, tell the reasons, and judge the start of the later one."""
    earlier, later = asked.pair(opened)
    forecasts = forecasts_of(opened, (earlier.version, later.version), messages)
    by_version = {forecast.broker_version: forecast for forecast in forecasts}
    target = opened.at(later)
    options = forecast_options(target.conf)
    checked = preflight(target.store, earlier, later, options, by_version, target.conf)
    effects = replace(beside := BesideLog.of(target), in_use=False)  # which is stopped before the upgrade
    judged = [by_version[later.version]] if later.version in by_version else []
    assessment = with_preflight(forecast_assessment(target, lines.own, judged, effects), checked)
    assessment = assessment.with_coverage(*not_simulated_of((earlier.version, later.version), forecasts))
    if beside.in_use:
        assessment = assessment.with_coverage(_BROKER_RUNS)
    step = step_after_preflight(lines, assessment, checked) or step_after(
        lines.plain, target, assessment, judged, beside
    )
    shown = preflight_json(lines, checked, opened.inferred)
    ending = {**assessment.as_json(), **step.as_json(), **vars(beside), **shown}
    _write(forecasts, ending, output, all_rows=messages.verbose, is_one=False)
    return assessment.verdict if judged else StoreVerdict.NOT_READABLE


def forecasts_of(
    opened: OpenedStore,
    versions: Sequence[str],
    messages: Messages,
    digest: LogDigest | None = None,
    *,
    count_index: bool = True,
) -> list[Forecast]:
    """What brokers of each version would do, as far as their start can be forecast.

    Args:
        digest: what is known of the log already.
        count_index: whether to tell what the index would lack, which reads the log for each way to enter keys.
    """
    forecasts: list[Forecast] = []
    shared_by_settings: dict[Hashable, SharedStarts] = {}
    with messages.progress("forecast", unit="version") as progress:
        for number, version in enumerate(versions):
            progress.show(number, len(versions))
            progress.next(f"forecast of {version}")
            asked = opened.at(rules_for(version))
            options = replace(forecast_options(asked.conf), count_index=count_index)
            shared = shared_by_settings.setdefault((asked.store.settings, options), SharedStarts())
            options = replace(options, digest=digest if asked.store is opened.store else None)
            try:
                forecasts.append(
                    forecast_store(asked.store, asked.rules, options, None if len(versions) == 1 else shared)
                )
            except UnsupportedError as error:
                messages.warn(f"{version}: {error}")
            except UnreadableError:
                if not denied_files(opened.store):
                    raise
                break  # for every version: the verdict names what this user may not read
    return forecasts


def not_simulated_of(versions: Sequence[str], forecasts: Sequence[Forecast]) -> tuple[UnreadFiles, ...]:
    """The starts that were asked for and are in no forecast."""
    known = {forecast.broker_version for forecast in forecasts}
    left = [version for version in versions if version not in known]
    return (UnreadFiles(f"start of {', '.join(left)}", "start", "is not simulated on this store"),) if left else ()


def forecast_assessment(
    opened: OpenedStore,
    line: CommandLine,
    forecasts: Sequence[Forecast],
    effects: BesideLog,
) -> Assessment:
    """What forecasts come to; the worst of several counts."""
    store = opened.store
    begin = store.log_start
    counted_from = max((forecast.counted_from or 0 for forecast in forecasts), default=0)
    below = f"what lies below physical offset {counted_from} was not counted"
    inconsistent = [f"{finding.file}: {finding.message}" for finding in lost_configs(store, opened.rules)]
    broken = _broken_database(store, opened.rules)
    if broken is not None:
        text = f"{broken.directory}: blocks of the queues in RocksDB are damaged: {broken.reason}"
        inconsistent.append(f"{text}; a broker fails at them, some at the start")
    inconsistent += [f"timer: {effect['brokers']}" for effect in effects.timer[:1]]
    inconsistent += [f"delay {effect['message']}: {effect['brokers']}" for effect in effects.wrong_delays[:1]]
    inconsistent += [f"compacted topics: {effect['brokers']}" for effect in effects.compaction[:1]]
    inconsistent += side_harms(forecasts, has_index=shows_index(store, readable_checkpoint(store)))
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
        not_looked_at=(
            *unread_files(store, _looked_at(store, opened.rules)),
            *unsimulated_settings(opened.conf, store),
            *((UnreadFiles("commitlog", FileKind.COMMITLOG.value, below),) if counted_from > begin else ()),
        ),
    )


def _broken_database(store: Store, rules: BrokerRules) -> QueueDatabase | None:
    """The database that has all queues, if a broker opens it and cannot read all of it."""
    database = store.queue_database if rules.rocksdb_queues else None
    return database if database is not None and database.failure is RocksFailure.UNREADABLE else None


def _looked_at(store: Store, rules: BrokerRules) -> frozenset[FileKind]:
    """Kinds of files beside log, queues and index that a forecast looks at."""
    kinds = side_kinds(store, rules, FORECAST)
    second = store.second_database if store.settings.queue_roles is not None else None
    if second is not None and second.is_read:
        kinds |= {FileKind.CONSUMEQUEUE_ROCKSDB}
    return kinds


def step_after(
    line: CommandLine,
    opened: OpenedStore,
    assessment: Assessment,
    forecasts: Sequence[Forecast],
    effects: BesideLog,
) -> NextStep:
    """What to do about what forecasts came to."""
    if effects.in_use:
        return NextStep(None, "stop the running broker before another is started, and look again then", True)
    settings = forecast_options(opened.conf).why_not or opened.unread_sizes
    if settings is not None and assessment.verdict is not StoreVerdict.OK and blocked_step(assessment) is None:
        return NextStep(None, f"correct the settings first: {settings}", needs_decision=True)
    store, repair_of_effects = opened.store, effects.repair(opened)
    lost = [finding for finding in lost_configs(store, opened.rules) if finding.repair != REBUILD_DELAYS]
    is_inconsistent = assessment.verdict is StoreVerdict.INCONSISTENT
    lacks_batch_topics = opened.rules.batch_queues and bool(store.batch_queues)
    prevents_start = lacks_batch_topics or do_topics_prevent_start(store, opened.rules)
    if _broken_database(store, opened.rules) is not None:
        repair = "recover" if store.has_abort else REBUILD_QUEUES
    elif any(map(_meets_damage, forecasts)):
        repair = "salvage"
    elif repair_of_effects is not None and not assessment.lost:
        unknown = unknown_to_repair(
            opened,
            queues=False,
            index=False,
            timer=repair_of_effects == REBUILD_TIMER,
            compaction=repair_of_effects == REBUILD_COMPACTION,
        )
        return step_after_forecast(line, assessment, repair_of_effects, tuple(unknown))
    elif effects.missing_levels and not (assessment.lost or lost):
        remedy = BY_ID[effects.missing_levels[0]["id"]].remedy
        return NextStep(None, f"correct the settings first: {remedy}", needs_decision=True)
    elif lost and lost[0].repair is not None and (is_inconsistent or prevents_start):
        return step_after_forecast(line, assessment, lost[0].repair)
    elif is_inconsistent and lost:
        return NextStep(None, f"{lost[0].file}: {BY_ID[lost[0].id].remedy}", needs_decision=True)
    elif store.queue_kind == "rocksdb" and store.queues and assessment.verdict is StoreVerdict.WOULD_LOSE:
        return repair_step(line, "convert --queues rocksdb", "convert the consume queues before the broker is started:")
    elif (doubtful := _doubtful_topics(store, forecasts)) and lost and lost[0].repair is not None:
        return step_after_forecast(line, assessment, lost[0].repair)
    elif doubtful and not store.has_abort and _awaits_decision(read_config(store.view, TOPICS), doubtful):
        return _deletion_step(line, doubtful)
    else:
        repair = "recover"
    lacks_queues = not store.queues and store.queue_kind == "file"
    unknown = unknown_to_repair(opened, queues=lacks_queues, index=not store.index_files)
    return step_after_forecast(line, assessment, repair, tuple(unknown))


def _doubtful_topics(store: Store, forecasts: Sequence[Forecast]) -> list[str]:
    """The topics of all messages that would be lost, if somebody may have deleted each of them; else none."""
    if any(forecast.messages_without_log for forecast in forecasts):
        return []
    topics = sorted({topic for forecast in forecasts for topic in forecast.lost.by_topic})
    shown = shown_topics(store) if topics else None
    return topics if all(may_be_deleted(topic, shown) for topic in topics) else []


def _awaits_decision(config: ConfigFile, doubtful: Sequence[str]) -> bool:
    """Whether no repair of the topics helps before a person decides about those that may have been deleted."""
    if config.is_backup:
        return not named_topics(config).isdisjoint(doubtful)
    return config.state in (ConfigState.READ, ConfigState.ABSENT)


def _deletion_step(line: CommandLine, topics: Sequence[str]) -> NextStep:
    """What a person must decide about topics that were deleted or lost their queues; nothing tells which."""
    commands = " or ".join(line(f"rebuild --topic {shlex.quote(topic)}") for topic in topics[:NAMED_MAX])
    what = "it was deleted: its" if len(topics) == 1 else "they were deleted: their"
    named = f"{', '.join(topics[:NAMED_MAX])}{', ...' if len(topics) > NAMED_MAX else ''}"
    reason = f"{named}: nothing shows whether {what} messages stay in the log until they expire, or come back with"
    return NextStep(None, f"{reason} {commands}", needs_decision=True)


def _meets_damage(forecast: Forecast) -> bool:
    """Whether damage lies inside the log, where the start meets it or skips it."""
    stop = forecast.stops_at
    is_harmed = forecast.lost.messages > 0 or not forecast.starts
    if stop is not None and stop.finding not in TAIL:
        is_harmed |= any(queue.offsets_repeat for queue in forecast.queues)
    cuts = stop is not None and stop.finding is not None and is_harmed
    return cuts or forecast.unnoticed_damage_count > 0 or forecast.messages_without_log > 0


def _write(
    forecasts: Sequence[Forecast], ending: dict[str, Any], output: OutputFormat, *, all_rows: bool, is_one: bool
) -> None:
    rows = [forecast.as_json() for forecast in forecasts]
    if output is OutputFormat.JSONL:
        for row in (*rows, {"type": "summary", **ending}):
            sys.stdout.write(json_text(row) + "\n")
    elif output is OutputFormat.JSON:
        sys.stdout.write(json_text({"forecasts": rows, **ending}, indent=2) + "\n")
    else:
        terminal = screen()
        lines = comparison_lines(rows, ending, terminal.width, crops=not terminal.shows_all)
        if is_one and rows:
            all_rows = all_rows or terminal.shows_all
            lines = forecast_lines(rows[0], ending, terminal.width, color=terminal.color, all_rows=all_rows)
        sys.stdout.writelines(f"{text}\n" for text in lines)
