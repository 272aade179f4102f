"""`rmqtool forecast`: what a broker would do at its next start, which is simulated in `forecast`."""

from __future__ import annotations

import sys
from collections.abc import Hashable, Sequence
from dataclasses import replace
from typing import Annotated, Any, Final

import typer

from rmqtool.answer.answer import Answer
from rmqtool.answer.beside_log import BesideLog
from rmqtool.answer.forecast_answer import PreflightLines, answer_of_forecasts, answer_of_preflight
from rmqtool.answer.opened_store import OpenedStore
from rmqtool.answer.presence import denied_files
from rmqtool.commands.messages import Messages, messages_of
from rmqtool.commands.options import store as shared
from rmqtool.commands.options.bundle import demand_as_recorded, recorded_of, store_of_bundle
from rmqtool.commands.options.help_groups import option
from rmqtool.commands.screen import screen
from rmqtool.engine.rules.versions import EXAMINED, NEWEST, SUPPORTED, nearest_releases, rules_for
from rmqtool.errors import UnreadableError, UnsupportedError, UsageError
from rmqtool.forecast.forecast import SharedStarts, forecast_store
from rmqtool.forecast.options import forecast_options
from rmqtool.forecast.preflight import preflight
from rmqtool.forecast.result import Forecast
from rmqtool.report.screens.forecast_screen import comparison_lines, forecast_lines
from rmqtool.report.writers import ObjectFormat, OutputFormat, json_text
from rmqtool.scan.row_cache import RowCache

ALL: Final = "all"


@shared.with_store_options("broker_version")
def forecast(
    context: typer.Context,
    store: shared.ReadStore,
    *,
    store_options: shared.StoreOptions,
    broker_version: shared.VersionsOption = None,
    changed: Annotated[
        list[str] | None,
        option("--set KEY=VALUE", "Forecast as if the broker had this setting (storeType, ...); repeatable."),
    ] = None,
    before: shared.FromVersionOption = None,
    after: shared.ToVersionOption = None,
    form: shared.ObjectFormatOption = ObjectFormat.TABLE,
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
    is_preflight = before is not None or after is not None
    if is_preflight:
        _demand_versions(before, after, broker_version)
    wants_all = broker_version == ALL
    store = store_of_bundle(store, context)
    is_plain = store_options.are_empty and broker_version is None and not (changed or is_preflight)
    recorded = recorded_of(store, messages, asks_more=not is_plain)
    if recorded is not None:
        of_store = recorded.forecast
        if of_store.is_cut:
            messages.warn("only some of the queues, topics and files of the recorded answer are in the bundle")
        _write(of_store.forecasts, of_store.ending(), output, all_rows=messages.verbose, is_one=of_store.is_one)
        raise typer.Exit(of_store.exit_code)
    chosen_version = before if is_preflight else None if wants_all else broker_version
    store_options = replace(store_options, broker_version=chosen_version, properties=tuple(changed or ()))
    opened = shared.open_store(store, store_options)
    if not wants_all:
        shared.tell_opened(opened, messages)
    line = shared.command_line(store, store_options)
    if is_preflight:
        lines = PreflightLines(line, shared.command_line(store, replace(store_options, broker_version=None)))
        answer = _show_preflight(opened, lines, before, after, output, messages)
    else:
        versions = EXAMINED if wants_all else opened.possible_versions
        forecasts = forecasts_of(opened, versions, messages)
        shown = forecasts
        if not wants_all and opened.is_version_known:
            shown = _told_apart(forecasts, opened.rules.version)
        effects = BesideLog.of(opened)
        answer = answer_of_forecasts(opened, line, versions, shown, effects, simulated=forecasts)
        ending = {**answer.as_json(), **vars(effects)}
        if is_plain:
            demand_as_recorded(store, ending, shown)
        _write(shown, ending, output, all_rows=messages.verbose, is_one=len(shown) == 1 and not wants_all)
    raise typer.Exit(answer.exit_code)


def _demand_versions(before: str | None, after: str | None, broker_version: str | None) -> None:
    """Refuse --from and --to that exclude each other or name no version, before the store is opened."""
    if broker_version is not None:
        raise UsageError("--from and --to name the versions: leave --broker-version out")
    for name, version in (("--from", before), ("--to", after)):
        if version is not None and version not in SUPPORTED:
            nearest = nearest_releases(version)
            ones = "one is" if len(nearest) == 1 else "ones are"
            text = f"rmqtool does not know how this release differs; the nearest {ones} {' and '.join(nearest)}"
            raise UsageError(f"{name} {version}: {text}")
    if before == (after or NEWEST):
        raise UsageError(f"--from and --to are both {before}: nothing changes")


def _told_apart(forecasts: list[Forecast], version: str) -> list[Forecast]:
    """Forecasts of all releases that fit a store, if they differ; else that of one version."""
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


def _show_preflight(
    opened: OpenedStore,
    lines: PreflightLines,
    before: str | None,
    after: str | None,
    output: OutputFormat,
    messages: Messages,
) -> Answer:
    """Forecast both versions, give the reasons, and judge the start of the later one; UsageError where nothing shows
    the version of the store, which is that of --from, or it is that of --to.
    """
    later = rules_for(after or NEWEST)
    if before is None and not opened.is_version_known:
        raise UsageError("nothing in the store shows its broker version: pass --from X.Y.Z")
    earlier = rules_for(before or opened.rules.version)
    if earlier.version == later.version:
        raise UsageError(
            f"the store fits {opened.inferred}, so --from is {earlier.version}, as --to is: nothing changes; pass "
            "another version"
        )
    forecasts = forecasts_of(opened, (earlier.version, later.version), messages)
    by_version = {forecast.broker_version: forecast for forecast in forecasts}
    target = opened.at(later)
    checked = preflight(target.store, earlier, later, forecast_options(target.conf), by_version, target.conf)
    beside = BesideLog.of(target)
    answer = answer_of_preflight(target, lines, checked, forecasts, beside)
    changes = checked.changes_json()
    for row in changes:
        if row["command"] is not None:
            row["command"] = lines.for_command(row["command"])(row["command"])
    pair = {"store_fits": opened.inferred, "from": checked.before, "to": checked.after}
    ending = {**answer.as_json(), **vars(beside), "preflight": pair, "changes": changes}
    _write(forecasts, ending, output, all_rows=messages.verbose, is_one=False)
    return answer


def forecasts_of(
    opened: OpenedStore,
    versions: Sequence[str],
    messages: Messages,
    cache: RowCache | None = None,
    *,
    count_index: bool = True,
) -> list[Forecast]:
    """What brokers of each version would do, as far as their start can be forecast; the cache is of the log, where it
    is known already. To count what the index would lack, the log is read for each way to enter keys.
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
            options = replace(options, cache=cache if asked.store is opened.store else None)
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
