"""`rmqtool watch`: checks a store beside its broker as it grows. What is checked, and when, is decided in `watch`."""

from __future__ import annotations

import sys
import time
from contextlib import nullcontext
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any, Final

import typer

from rmqtool.answer.exit_codes import ExitCode
from rmqtool.commands.closed_pipe import reader_needed
from rmqtool.commands.messages import Messages, messages_of
from rmqtool.commands.options import store as shared
from rmqtool.commands.options.help_groups import OUTPUT, option
from rmqtool.commands.options.output_files import demand_own_files
from rmqtool.commands.options.run import byte_count, duration_s
from rmqtool.commands.screen import screen
from rmqtool.errors import UsageError
from rmqtool.repair.machine.interrupt import Interrupt, held_interrupts
from rmqtool.report.metrics import write_metrics
from rmqtool.report.own_file import OwnFile
from rmqtool.report.screens.watch_screen import row_text, summary_lines, watch_metrics
from rmqtool.report.text import size_text
from rmqtool.report.writers import json_text
from rmqtool.store.location import StoreLocation, survey_store
from rmqtool.watch.limited_view import ReadLimit
from rmqtool.watch.state import WatchState, load_state
from rmqtool.watch.watcher import Watcher, WatchOptions
from rmqtool.watch.webhook import Webhook, webhook_url

STATUS_SECONDS: Final = 60.0
"""Between two rows of type `status`."""
NAP_SECONDS: Final = 0.25
ONCE_LOOKS_MAX: Final = 1000
ONCE_TROUBLE_MAX: Final = 5
"""Looks in a row that `--once` lets fail for the same reason, where a broker may be changing what is there."""


class WatchFormat(StrEnum):
    """Output format of a watch while it runs."""

    TABLE = "table"
    JSONL = "jsonl"


@shared.with_store_options()
def watch(
    context: typer.Context,
    store: shared.StorePath,
    max_rate: Annotated[
        str | None, option("BYTES", "Maximum number of bytes to read a second, like 20M (default: no limit).")
    ] = None,
    interval: Annotated[str, option("TIME", "Time between two looks where nothing is left to check.")] = "5s",
    state: Annotated[
        Path | None, option("FILE", "File that remembers what was checked, for the next run; outside the store.")
    ] = None,
    from_start: Annotated[
        bool, option("--from-start", "Check the whole log first (default: from the start of its newest file).")
    ] = False,
    once: Annotated[bool, option("--once", "Check what is there now, then stop.")] = False,
    max_duration: Annotated[str | None, option("TIME", "Stop after this time: 90s, 20m, 2h (default: never).")] = None,
    exit_on_finding: Annotated[
        bool, option("--exit-on-finding", "Stop at the first finding or alert, with exit code 3.")
    ] = False,
    max_dispatch_lag: Annotated[
        str | None, option("BYTES", "Alert where so much of the log is in no queue yet, like 64M.")
    ] = None,
    max_flush_lag: Annotated[
        str | None, option("TIME", "Alert where the last flushed record is older, like 5m.")
    ] = None,
    max_index_lag: Annotated[
        str | None, option("BYTES", "Alert where the index lags the queues by more, like 64M.")
    ] = None,
    webhook: Annotated[str | None, option("URL", "Post findings and alerts as JSON to this http or https URL.")] = None,
    textfile: Annotated[
        Path | None, option("FILE", "Write metrics for the textfile collector of Prometheus' node exporter.")
    ] = None,
    output: Annotated[WatchFormat, option("--format", "Output format.", OUTPUT)] = WatchFormat.TABLE,
    *,
    store_options: shared.StoreOptions,
) -> None:
    """Check a store beside its running broker, as it grows: commit log, consume queues and index.

    The store is only read, and no lock is taken. What is dispatched and flushed is checked once, at a bounded rate;
    what looks wrong is checked again before it is reported. The exit code is 3 if there were findings or alerts.

    Example: rmqtool watch /home/rocketmq/store --max-rate 20M --state /var/lib/rmqtool/watch.state
    """
    limits = {
        "dispatch-lag": byte_count(max_dispatch_lag, "--max-dispatch-lag"),
        "flush-lag": None if max_flush_lag is None else int(duration_s(max_flush_lag, "--max-flush-lag") * 1000),
        "index-lag": byte_count(max_index_lag, "--max-index-lag"),
    }
    rate = byte_count(max_rate, "--max-rate")
    if rate == 0:
        raise UsageError("--max-rate: 0 bytes a second would never check anything")
    seconds = duration_s(interval, "--interval")
    until = None if max_duration is None else time.monotonic() + duration_s(max_duration, "--max-duration")
    url = None if webhook is None else webhook_url(webhook)
    opened = shared.open_store(store, store_options)
    directories = opened.store.settings.commitlog_directories
    for path, what in ((textfile, "the text file"), (state, "the state file")):
        if path is not None:
            shared.refuse_inside_store(path, what, StoreLocation(store), directories)
    known = WatchState() if state is None else load_state(state, store)
    demand_own_files({"--state": (state, OwnFile.WATCH_STATE), "--textfile": (textfile, OwnFile.METRICS)})
    shared.tell_opened(opened, messages_of(context))
    options = WatchOptions(
        store,
        lambda: survey_store(
            store, store_options.commitlog, store_options.index_slots, opened.conf, store_options.sizes
        ),
        opened.rules,
        from_start=from_start,
        limits=limits,
    )
    with held_interrupts() as interrupt:
        limit = ReadLimit(rate, interrupt.demand_none)
        run = _Session(store, store_options, options, known, limit, messages_of(context), output)
        run.state_file, run.textfile = state, textfile
        run.webhook = None if url is None else Webhook(url)
        run.go(interrupt, seconds, until, once=once, exit_on_finding=exit_on_finding)


class _Session:
    """One run: its output meanwhile and in the end."""

    def __init__(
        self,
        store: Path,
        store_options: shared.StoreOptions,
        options: WatchOptions,
        state: WatchState,
        limit: ReadLimit,
        messages: Messages,
        output: WatchFormat,
    ) -> None:
        self._store, self._line = store, shared.command_line(store, store_options)
        self._limit, self._messages, self._output = limit, messages, output
        self.state_file: Path | None = None
        self.textfile: Path | None = None
        self.webhook: Webhook | None = None
        self._watcher = Watcher(options, state, limit, self._tell, self._save)
        self._alert_count = self._finding_count = 0
        self._webhook_problem: str | None = None
        self._status_at = time.monotonic()
        self._is_unread = False

    def go(
        self, interrupt: Interrupt, interval: float, until: float | None, *, once: bool, exit_on_finding: bool
    ) -> None:
        """Look until the end of the run, print its result, and exit by the findings, alerts and the last look."""
        watcher, looks, trouble, failed = self._watcher, 0, None, 0
        try:
            has_other_receiver = self.webhook is not None or self.textfile is not None
            with nullcontext() if has_other_receiver else reader_needed():
                while not interrupt.is_asked:
                    watcher.look()
                    looks += not watcher.has_more
                    if watcher.trouble is not None and watcher.trouble != trouble:
                        self._messages.warn(f"{watcher.trouble}; looking again")
                    failed = failed + 1 if watcher.trouble is not None and watcher.trouble == trouble else 0
                    trouble = watcher.trouble
                    self._write()
                    is_over = until is not None and time.monotonic() >= until
                    is_settled = not (watcher.has_more or watcher.is_unsettled or trouble)
                    if is_over or (once and (is_settled or looks >= ONCE_LOOKS_MAX or failed >= ONCE_TROUBLE_MAX)):
                        break
                    if exit_on_finding and self._alert_count + self._finding_count:
                        break
                    if not watcher.has_more:
                        _wait(interrupt, min(interval, 1.0) if once else interval, until)
        except KeyboardInterrupt:
            pass  # asked to stop in the middle of a read; the state is that of the last range
        except BrokenPipeError:
            self._is_unread = True
        finally:
            if self.webhook is not None:
                self.webhook.close()
            self._save()
            self._write()
        self._finish()

    def _finish(self) -> None:
        summary = {"type": "summary", **self._summary()}
        if self._output is WatchFormat.JSONL:
            self._print(json_text(summary))
        elif not self._messages.quiet:
            for line in summary_lines(summary, screen().width):
                self._print(line)
        if self._watcher.trouble is not None:
            self._messages.error(self._watcher.trouble)
            raise typer.Exit(ExitCode.FAILED)
        if self._finding_count or self._alert_count:
            raise typer.Exit(ExitCode.FINDINGS)
        if self._is_unread:
            raise typer.Exit(ExitCode.UNREAD)

    def _tell(self, row: dict[str, Any]) -> None:
        row = {**row, "timestamp_ms": int(time.time() * 1000)}
        self._finding_count += row["type"] == "finding"
        self._alert_count += row["type"] == "alert" and row["state"] == "raised"
        if row["type"] == "finding":
            row["repair"] = None if row["repair"] is None else self._line(row["repair"])
        if self.webhook is not None and row["type"] in ("finding", "alert"):
            self.webhook.send({"store": str(self._store), **row})
        if self._output is WatchFormat.JSONL:
            self._print(json_text(row))
        elif row["type"] != "event" or not self._messages.quiet:
            self._print(row_text(row))

    def _print(self, line: str) -> None:
        sys.stdout.write(f"{line}\n")
        sys.stdout.flush()

    def _save(self) -> None:
        if self.state_file is not None:
            self._watcher.state.save(self.state_file)

    def _write(self) -> None:
        """The text file, and a row of status now and then."""
        if self.textfile is not None:
            write_metrics(self.textfile, watch_metrics(self._values()))
        problem = None if self.webhook is None else self.webhook.problem
        if problem is not None and problem != self._webhook_problem:
            self._messages.warn(problem)
        self._webhook_problem = problem
        if self._output is WatchFormat.JSONL and time.monotonic() - self._status_at >= STATUS_SECONDS:
            self._status_at = time.monotonic()
            self._print(json_text({"type": "status", **self._summary()}))

    def _values(self) -> dict[str, Any]:
        watcher = self._watcher
        state, lags, counts = watcher.state, watcher.lags, watcher.state.counts
        return {
            "store": str(self._store),
            "timestamp_ms": int(time.time() * 1000),
            "broker_runs": watcher.broker_runs,
            "is_readable": watcher.trouble is None,
            "verified_from": state.first_offset,
            "verified_to": None if state.position is None else state.position.physical_offset,
            "log_end_offset": lags.log_end,
            "verify_lag_bytes": watcher.verify_lag_bytes,
            "dispatch_lag_bytes": lags.dispatch_bytes,
            "flush_lag_ms": lags.flush_ms,
            "index_lag_bytes": lags.index_bytes,
            "alerts_raised": sorted(watcher.alarms.raised),
            "findings": dict(sorted(counts.findings.items())),
            "counts": {
                **{name: value for name, value in vars(counts).items() if name != "findings"},
                "read_bytes": self._limit.byte_count,
                "webhook_dropped": 0 if self.webhook is None else self.webhook.dropped,
            },
        }

    def _summary(self) -> dict[str, Any]:
        values = self._values()
        counts = values.pop("counts")
        findings = values["findings"]
        left_out = []
        if lag := values["verify_lag_bytes"]:
            text = f"{size_text(lag)} at its end: watch checks what is flushed and in the consume queues"
            left_out.append({"path": "commitlog", "kind": "commitlog", "reason": text})
        is_next = bool(findings) or bool(lag and values["broker_runs"] is False)
        if self._watcher.has_rocksdb_queues:
            text = "consume queues in RocksDB are not compared beside a running broker"
            left_out.append({"path": "consumequeue_r", "kind": "consumequeue_rocksdb", "reason": text})
        text = "only checked by verify and forecast, once the broker has stopped"
        left_out.append({"path": "config", "kind": "config", "reason": text})
        return {
            **values,
            "checked": {
                "records": counts["records"],
                "bytes": counts["verified_bytes"],
                "units": counts["units"],
                "entries": counts["entries"],
            },
            "skipped_bytes": counts["skipped_bytes"],
            "read_bytes": counts["read_bytes"],
            "alerts": counts["alerts"],
            "broker_starts": counts["restarts"],
            "webhook_dropped": counts["webhook_dropped"],
            "not_looked_at": left_out,
            "next_step": {
                "command": self._line("verify") if is_next else None,
                "reason": "checks the whole store" if is_next else None,
            },
        }


def _wait(interrupt: Interrupt, seconds: float, until: float | None) -> None:
    end = time.monotonic() + seconds if until is None else min(until, time.monotonic() + seconds)
    while not interrupt.is_asked and (left := end - time.monotonic()) > 0:
        time.sleep(min(left, NAP_SECONDS))
