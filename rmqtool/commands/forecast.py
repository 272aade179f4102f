"""`rmqtool forecast`: what a broker would do at its next start. What that is is decided in `forecast`."""

from __future__ import annotations

import sys
from dataclasses import replace
from typing import Final

import typer

from rmqtool.commands.exit_codes import ExitCode
from rmqtool.commands.messages import messages_of
from rmqtool.commands.options import (
    BrokerConfOption,
    BrokerVersionOption,
    CommitlogOption,
    FormatOption,
    IndexEntriesOption,
    IndexSlotsOption,
    LogFileSizeOption,
    QueueFileSizeOption,
    ReadStore,
    StoreOptions,
    file_sizes,
    open_store,
)
from rmqtool.commands.screen import screen
from rmqtool.engine.rules.versions import EXAMINED, rules_for
from rmqtool.errors import UnsupportedError, UsageError
from rmqtool.forecast.forecast import SharedStarts, forecast_store
from rmqtool.forecast.options import ForecastOptions
from rmqtool.forecast.result import Forecast
from rmqtool.formats.tags import parse_delay_levels
from rmqtool.report.forecast_screen import comparison_lines, forecast_lines
from rmqtool.report.writers import OutputFormat, json_text
from rmqtool.store.broker_conf import BrokerConf

ALL: Final = "all"


def forecast(
    context: typer.Context,
    store: ReadStore,
    commitlog: CommitlogOption = None,
    log_file_size: LogFileSizeOption = None,
    queue_file_size: QueueFileSizeOption = None,
    index_slots: IndexSlotsOption = None,
    index_entries: IndexEntriesOption = None,
    broker_conf: BrokerConfOption = None,
    broker_version: BrokerVersionOption = None,
    output: FormatOption = OutputFormat.TABLE,
) -> None:
    """Show what a broker would do at its next start, and which messages it would lose.

    Nothing is changed. With --broker-version all, or if the store does not show its version, several versions are
    shown side by side. The exit code is 0 only if the broker starts, loses nothing and serves no damage; else 3.

    Example: rmqtool forecast /home/rocketmq/store --broker-version 5.3.3
    """
    if output is OutputFormat.CSV:
        raise UsageError("--format csv: forecast has no rows; use table, json or jsonl")
    messages = messages_of(context)
    wants_all = broker_version == ALL
    sizes = file_sizes(log_file_size, queue_file_size, index_entries)
    chosen_version = None if wants_all else broker_version
    opened = open_store(store, StoreOptions(commitlog, index_slots, broker_conf, chosen_version, sizes))
    if not wants_all:
        opened.tell(messages)
    options = forecast_options(opened.conf)
    is_one = not wants_all and (broker_version is not None or opened.inferred is not None)
    if is_one:
        forecasts = [forecast_store(opened.store, opened.rules, options)]
    else:
        forecasts, shared = [], SharedStarts()
        for version in EXAMINED:
            try:
                forecasts.append(forecast_store(opened.store, rules_for(version), options, shared))
            except UnsupportedError as error:
                messages.warn(f"{version}: {error}")
        if not forecasts:
            raise UnsupportedError(f"{store}: the start of no broker version can be forecast")
    if output is OutputFormat.TABLE:
        here = screen()
        rows = [each.as_json() for each in forecasts]
        lines = (
            forecast_lines(rows[0], here.width, colour=here.colour, all_rows=messages.verbose)
            if is_one
            else comparison_lines(rows, here.width)
        )
        for line in lines:
            sys.stdout.write(f"{line}\n")
    else:
        _write_json(forecasts, is_one=is_one, output=output)
    if any(_costs(each) for each in forecasts):
        raise typer.Exit(ExitCode.FINDINGS)


def forecast_options(conf: BrokerConf | None) -> ForecastOptions:
    """What the broker's properties file says of a start."""
    options = ForecastOptions()
    if conf is None:
        return options
    if conf.delay_levels:
        options = replace(options, delays_ms=parse_delay_levels(conf.delay_levels))
    return replace(
        options,
        message_index_safe=bool(conf.is_index_safe),
        index_enabled=conf.has_index is not False,
        record_crc=bool(conf.needs_record_crc),
        multi_dispatch=conf.has_multi_dispatch is not False,
        lmq=conf.has_light_queues is not False,
        extensions=conf.has_queue_extension is not False,
        is_slave=conf.broker_role == "SLAVE",
    )


def _write_json(forecasts: list[Forecast], *, is_one: bool, output: OutputFormat) -> None:
    rows = [each.as_json() for each in forecasts]
    if output is OutputFormat.JSONL:
        for row in rows:
            sys.stdout.write(json_text(row) + "\n")
    else:
        sys.stdout.write(json_text(rows[0] if is_one else {"forecasts": rows}, indent=2) + "\n")


def _costs(forecast: Forecast) -> bool:
    lost = forecast.lost.messages + forecast.messages_without_log + forecast.misplaces_new_messages
    return not forecast.starts or lost > 0 or forecast.unnoticed_damage_count > 0
