"""`rmqtool mirror`: an off-host copy of a running broker's commit log. What is received is judged in `replication`."""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import Annotated, Any, Final

import typer

from rmqtool.answer.exit_codes import ExitCode
from rmqtool.commands.messages import Messages, messages_of
from rmqtool.commands.options import store as shared
from rmqtool.commands.options.help_groups import option
from rmqtool.commands.options.output_files import demand_own_files
from rmqtool.commands.options.run import duration_s, is_duration
from rmqtool.commands.screen import screen
from rmqtool.engine.append import writer_config
from rmqtool.engine.rules.settings import read_settings
from rmqtool.engine.rules.versions import NEWEST, rules_for
from rmqtool.errors import RefusedError, UsageError
from rmqtool.memory import settle
from rmqtool.repair.machine.interrupt import held_interrupts
from rmqtool.repair.machine.store_paths import StorePaths, is_fenced
from rmqtool.replication.connection import MasterAddress, parse_address
from rmqtool.replication.mirror import MirrorOptions
from rmqtool.replication.mirror_status import MirrorStatus
from rmqtool.replication.record_check import DivergedError, Until
from rmqtool.replication.run import MirrorRequest, MirrorResult, run_mirror
from rmqtool.report.metrics import write_metrics
from rmqtool.report.own_file import OwnFile
from rmqtool.report.screens.mirror_screen import mirror_lines, mirror_metrics
from rmqtool.report.text import counted
from rmqtool.report.writers import ObjectFormat, json_text
from rmqtool.store.config.broker_conf import with_properties
from rmqtool.store.directory import Store
from rmqtool.store.location import survey_store
from rmqtool.store.sizes import DEFAULT_LOG_FILE_SIZE
from rmqtool.times import parse_time, time_text

TEXTFILE_SECONDS: Final = 5.0


def mirror(
    context: typer.Context,
    master: Annotated[
        str, typer.Argument(metavar="HOST[:PORT]", help="Replication port of the master (haListenPort), default 10912.")
    ],
    store: shared.StorePath,
    from_offset: Annotated[
        int | None, option("N", "Start a new copy at the file that starts at N (default: the first).", min=0)
    ] = None,
    until: Annotated[
        str | None,
        option(
            "OFFSET|TIME|DURATION",
            "Stop before this physical offset, before this store time (now: what is there), or after 10m.",
        ),
    ] = None,
    build: Annotated[bool, option("--build", "Build consume queues, index and checkpoint as records arrive.")] = False,
    config: Annotated[
        list[str] | None, option("K=V", "A setting of the master, for log and queues; repeatable.")
    ] = None,
    config_from: Annotated[
        Path | None, option("DIR", "Copy the JSON files of this config/ too, now and every 30 s.")
    ] = None,
    as_slave: Annotated[bool, option("--as-slave", "Acknowledge what is on the disk here, as a slave does.")] = False,
    new_master: Annotated[bool, option("--new-master", "Continue a copy from another address than before.")] = False,
    sync_interval: Annotated[
        float, option("SECONDS", "Time between two fsyncs; 0: after each write.", min=0, max=3600)
    ] = 1.0,
    textfile: Annotated[
        Path | None, option("FILE", "Write lag and bytes for Prometheus' node exporter to this file.")
    ] = None,
    log_file_size: shared.LogFileSizeOption = None,
    broker_version: shared.BrokerVersionOption = None,
    form: shared.ObjectFormatOption = ObjectFormat.TABLE,
) -> None:
    """Keep a copy of a running broker's commit log, received through its replication port.

    Every record is checked before it is written; what does not continue the copy stops the mirror, and nothing is
    overwritten. It reconnects, and a later run continues. The master is not told what is safe here, so its SYNC_MASTER
    still waits for its slaves. The copy is a store: verify and recover take it, and a broker starts on it.

    Example: rmqtool mirror broker-a.example:10912 /backup/broker-a --build
    """
    address = parse_address(master)
    rules = rules_for(broker_version or NEWEST)
    shared.refuse_unknown_settings(config or (), "--config")
    properties = with_properties(None, config or [], read_settings(rules))
    shared.refuse_bad_settings(properties, rules)
    sizes = shared.file_sizes(log_file_size or properties.sizes.commitlog_file_size, None, None)
    limit, run_seconds = _until(until)
    if from_offset and from_offset % (sizes.commitlog_file_size or DEFAULT_LOG_FILE_SIZE):
        raise UsageError(
            f"--from-offset {from_offset}: not the start of a commit log file; with files of another size than 1 GiB "
            "pass --log-file-size too"
        )
    demand_own_files({"--textfile": (textfile, OwnFile.METRICS)})
    if store.is_dir() and is_fenced(StorePaths(store)):
        raise RefusedError(f"{store}: a repair was not finished; run rmqtool undo first")
    is_settled = False

    def look() -> Store:
        nonlocal is_settled
        surveyed = survey_store(store, None, None, properties, sizes)
        if not is_settled:  # before anything is written, the files of the copy count for `--max-memory`
            settle("this store", sum(map(len, surveyed.files.values())))
            is_settled = True
        return surveyed

    request = MirrorRequest(
        root=store,
        address=address,
        options=MirrorOptions(
            from_offset=from_offset,
            run_seconds=run_seconds,
            until=limit,
            sync_seconds=sync_interval,
            acknowledges=as_slave,
            record_crc=properties.has_record_crc or False,
        ),
        look=look,
        rules=rules,
        config=writer_config.config_from(properties),
        file_size=sizes.commitlog_file_size,
        builds=build,
        accepts_master=new_master,
        config_from=config_from,
    )
    _Command(request, messages_of(context), textfile, form).run()


class _Command:
    """One run of the command: its output meanwhile and in the end."""

    def __init__(self, request: MirrorRequest, messages: Messages, textfile: Path | None, form: ObjectFormat) -> None:
        self._request, self._messages, self._textfile, self._form = request, messages, textfile, form
        self._status = MirrorStatus()
        self._textfile_at = 0.0
        self._trouble: str | None = None

    def run(self) -> None:
        """Mirror, and show the result, also where the master's log does not continue the copy."""
        problem: DivergedError | None = None
        result = MirrorResult("problem")
        self._messages.interrupted = "what was copied before is in the store; a later run continues it"
        with (
            held_interrupts() as interrupt,
            self._messages.progress("connecting", facts=lambda: _values(self._request.address, self._status)) as shown,
        ):

            def turn() -> None:
                shown.next(f"{self._status.state}, at {self._status.end_offset}")
                trouble = self._status.trouble
                if trouble is not None and trouble != self._trouble:
                    self._messages.warn(f"{trouble}; trying again")
                self._trouble = trouble
                self._write_textfile()

            try:
                result = run_mirror(self._request, self._status, lambda: interrupt.is_asked, turn)
            except DivergedError as error:
                problem = error
            finally:
                self._textfile_at = 0.0
                self._write_textfile()
        for text in result.problems:
            self._messages.warn(text)
        if (late := self._status.late) is not None:
            records = counted(late.count, "record")
            self._messages.warn(
                f"store times out of order: {records} from {late.physical_offset} on, the first stored at "
                f"{time_text(late.store_timestamp_ms)}, come before records that were stored earlier; all are copied"
            )
        self._show(result, problem)
        if problem is not None:
            self._messages.error(problem)
            raise typer.Exit(ExitCode.FINDINGS)

    def _write_textfile(self) -> None:
        if self._textfile is not None and time.monotonic() - self._textfile_at >= TEXTFILE_SECONDS:
            write_metrics(self._textfile, mirror_metrics(_values(self._request.address, self._status)))
            self._textfile_at = time.monotonic()

    def _show(self, result: MirrorResult, problem: DivergedError | None) -> None:
        line = shared.command_line(self._request.root, shared.StoreOptions())
        late, skipped = self._status.late, self._status.skipped
        shown = {
            "store": str(self._request.root),
            **_values(self._request.address, self._status),
            "stopped_by": result.stopped_by,
            "late_records": None
            if late is None
            else {
                "physical_offset": late.physical_offset,
                "store_timestamp_ms": late.store_timestamp_ms,
                "records": late.count,
            },
            "skipped_records": None
            if skipped is None
            else {"physical_offset": skipped.physical_offset, "records": skipped.count},
            "config_files": result.config_files,
            "is_built": self._request.builds,
            "problem": None
            if problem is None
            else {"id": problem.finding, "physical_offset": problem.physical_offset, "message": str(problem)},
            "next_step": {
                "command": None if self._request.builds else line("rebuild"),
                "reason": None if self._request.builds else "builds the consume queues and the index of the copy",
            },
        }
        if self._form is ObjectFormat.TABLE:
            if not self._messages.quiet:
                sys.stdout.writelines(f"{text}\n" for text in mirror_lines(shown, screen().width))
        else:
            sys.stdout.write(json_text(shown, indent=2 if self._form is ObjectFormat.JSON else None) + "\n")


def _values(address: MasterAddress, status: MirrorStatus) -> dict[str, Any]:
    last, is_caught_up = status.last_store_timestamp_ms, status.state == "caught up"
    lag = 0.0 if is_caught_up else None if last is None else max(0.0, round(time.time() - last / 1000, 3))
    return {
        "master": str(address),
        "state": status.state,
        "connected": status.state in ("copying", "caught up"),
        "caught_up": is_caught_up,
        "start_offset": status.start_offset,
        "end_offset": status.end_offset,
        "synced_offset": status.synced_offset,
        "received_bytes": status.received_bytes,
        "copied_bytes": status.copied_bytes,
        "copied_records": status.record_count,
        "connects": status.connect_count,
        "last_store_timestamp_ms": last,
        "lag_seconds": lag,
    }


def _until(text: str | None) -> tuple[Until, float | None]:
    """Offset or duration in --until: the limit, and the number of seconds; UsageError if it is neither, nor a time."""
    if text is None:
        return Until(), None
    if text.isascii() and text.isdecimal():
        return Until(physical_offset=int(text)), None
    if is_duration(text):
        return Until(), duration_s(text, "--until")
    return Until(time_ms=parse_time(text, "--until"), is_now=text.strip().lower() == "now"), None
