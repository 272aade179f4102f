"""`rmqtool diff`: two stores, or a store and a manifest of another. What differs is found in `compare`."""

from __future__ import annotations

import sys
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any, Final

import typer

import rmqtool
from rmqtool.answer.diff_answer import ComparedSide, answer_of_comparison
from rmqtool.answer.exit_codes import ExitCode
from rmqtool.answer.opened_store import OpenedStore
from rmqtool.commands.messages import Messages, messages_of
from rmqtool.commands.options import store as shared
from rmqtool.commands.options.help_groups import option
from rmqtool.commands.options.output_files import demand_own_files
from rmqtool.commands.options.run import thread_count
from rmqtool.commands.options.spark import ConfOption, MasterOption, runner
from rmqtool.commands.screen import screen, write_rows
from rmqtool.compare.log_side import StoreLog, Terms
from rmqtool.compare.manifest import ManifestLog, write_manifest
from rmqtool.compare.metadata import read_metadata
from rmqtool.compare.run import ComparedStore, CompareOptions, compare
from rmqtool.errors import UsageError
from rmqtool.report.own_file import OwnFile
from rmqtool.report.screens.diff_screen import diff_lines, difference_text
from rmqtool.report.text import size_text
from rmqtool.report.writers import OutputFormat, json_text
from rmqtool.store.location import StoreLocation, store_location

FIELDS: Final = (
    "type", "topic", "queue_id", "queue_offset", "physical_offset", "size", "other_queue_id", "other_queue_offset",
    "other_physical_offset", "reason", "file", "table", "entry", "a", "b", "a_min", "a_max", "b_min", "b_max",
)  # fmt: skip


_Threads = Annotated[int | None, option("N", "Number of threads (default: one per core).", min=1, max=256)]
_WorkDir = Annotated[Path | None, option("DIR", "Directory for temporary files, if the messages do not fit in memory.")]
_LogOfA = Annotated[list[Path] | None, option("DIR", "Commit log directory of STORE, if elsewhere; repeatable.")]
_LogOfB = Annotated[list[Path] | None, option("DIR", "Commit log directory of STORE_B, if elsewhere; repeatable.")]


class Compared(StrEnum):
    """Parts that must be equal."""

    REPLICAS = "replicas"
    MESSAGES = "messages"


class Identity(StrEnum):
    """Identity of a message."""

    UNIQUE_KEY = "unique-key"
    CONTENT = "content"


class Detail(StrEnum):
    """Unit of a manifest's digests."""

    MESSAGES = "messages"
    BLOCKS = "blocks"


def diff(
    context: typer.Context,
    store: shared.ReadStore,
    other: Annotated[
        StoreLocation | None, typer.Argument(metavar="[STORE_B]", help="Store to compare with.", parser=store_location)
    ] = None,
    manifest: Annotated[Path | None, option("FILE", "Compare with the store of this manifest.")] = None,
    make_manifest: Annotated[
        Path | None, option("FILE", "Write a manifest of STORE, to compare on another machine.")
    ] = None,
    detail: Annotated[
        Detail, option("", "Digests in a new manifest: of messages, or of blocks only.")
    ] = Detail.MESSAGES,
    compared: Annotated[
        Compared, option("--as", "Expect copies of one log, or the same messages at any offset.")
    ] = Compared.REPLICAS,
    identity: Annotated[Identity | None, option("", "How to recognize a message (default: unique-key).")] = None,
    limit: Annotated[int, option("N", "Maximum number of differences to list of each kind.", min=0, max=100_000)] = 20,
    threads: _Threads = None,
    work_dir: _WorkDir = None,
    commitlog_a: _LogOfA = None,
    commitlog_b: _LogOfB = None,
    master: MasterOption = None,
    conf: ConfOption = None,
    output: shared.FormatOption = OutputFormat.TABLE,
) -> None:
    """Compare two stores or replicas: where their logs diverge, and which messages differ.

    Neither store is changed. A manifest replaces a store in a comparison on another machine. The exit code is 3 if
    something differs or was not compared, 4 if something cannot be read.

    Example: rmqtool diff /data/master/store /data/slave/store
    """
    messages = messages_of(context)
    given = {"STORE_B": other, "--manifest": manifest, "--make-manifest": make_manifest}
    named = [name for name, value in given.items() if value is not None]
    if not named:
        raise UsageError("nothing to compare with: name STORE_B or --manifest FILE, or use --make-manifest FILE")
    if len(named) > 1:
        raise UsageError(f"{named[0]} and {named[1]} exclude each other; use one of them")
    if commitlog_b and other is None:
        raise UsageError("--commitlog-b needs STORE_B")
    if make_manifest is not None and master is not None:
        raise UsageError("--master has no effect with --make-manifest, which reads one log in order")
    side = _side(store, commitlog_a, messages)
    opened = side.opened
    if make_manifest is not None:
        terms = Terms(by_content=identity is Identity.CONTENT)
        _make(opened, store, make_manifest, terms, detail, output, messages)
        return
    terms, described, side_b = Terms(by_content=identity is Identity.CONTENT), None, None
    if manifest is not None:
        described, terms = _from_manifest(manifest, identity)
    else:
        assert other is not None
        side_b = _side(other, commitlog_b, messages)
    options = CompareOptions(
        by_messages=compared is Compared.MESSAGES, limit=limit, threads=thread_count(threads), folder=work_dir
    )
    with runner(master, conf, messages) as chosen, messages.progress("diff") as progress:
        far = described if side_b is None else _subject(side_b.opened)
        assert far is not None
        comparison = compare(_subject(opened), far, terms, options, progress.show, chosen)
    comparison_json = comparison.as_json()
    answer = answer_of_comparison(comparison, difference_text(comparison_json), [side, side_b])
    comparison_json |= answer.assessment.as_json()
    comparison_json |= {"complete": not answer.assessment.not_looked_at, **answer.step.as_json()}
    _write(comparison_json, output, messages)
    for problem in comparison.problems:
        messages.error(problem)
    raise typer.Exit(answer.exit_code)


def _side(place: StoreLocation, commitlog: list[Path] | None, messages: Messages) -> ComparedSide:
    options = shared.StoreOptions(commitlog)
    opened = shared.open_store(place, options)
    shared.tell_opened(opened, messages)
    return ComparedSide(opened, shared.command_line(place, options))


def _subject(opened: OpenedStore) -> ComparedStore:
    store = opened.store
    log = StoreLog(store)
    return ComparedStore(
        label=store.view.label,
        kind="store",
        log=log,
        facts=read_metadata(store, opened.rules),
        not_compared=tuple(log.left_out),
        problems=(*log.problems, *map(str, store.problems)),
    )


def _from_manifest(path: Path, identity: Identity | None) -> tuple[ComparedStore, Terms]:
    log = ManifestLog(path)
    manifest = log.description
    manifest_identity = Identity.CONTENT if manifest.terms.by_content else Identity.UNIQUE_KEY
    if identity not in (None, manifest_identity):
        raise UsageError(f"--identity {identity}: the manifest was made with {manifest_identity}")
    subject = ComparedStore(
        manifest.label, "manifest", log, manifest.facts, totals=manifest.totals, not_compared=manifest.not_compared,
        problems=(),
    )  # fmt: skip
    return subject, manifest.terms


def _make(
    opened: OpenedStore,
    store: StoreLocation,
    path: Path,
    terms: Terms,
    detail: Detail,
    output: OutputFormat,
    messages: Messages,
) -> None:
    shared.refuse_inside_store(path, "a manifest", store, opened.store.settings.commitlog_directories)
    demand_own_files({"--make-manifest": (path, OwnFile.MANIFEST)})
    with messages.progress("manifest") as progress:
        subject = _subject(opened)
        description = write_manifest(
            path,
            subject,
            f"rmqtool {rmqtool.__version__}",
            terms,
            has_rows=detail is Detail.MESSAGES,
            on_progress=progress.show,
        )
    row: dict[str, Any] = {
        "type": "manifest",
        "file": str(path),
        "store": description.label,
        "detail": (Detail.MESSAGES if description.has_rows else Detail.BLOCKS).value,
        "identity": (Identity.CONTENT if description.terms.by_content else Identity.UNIQUE_KEY).value,
        "min_offset": description.totals.begin,
        "max_offset": description.totals.end,
        "messages": description.totals.messages,
        "bad_ranges": description.totals.bad_ranges,
        "manifest_bytes": path.stat().st_size,
    }
    if output is OutputFormat.TABLE:
        totals = description.totals
        where = "no log" if totals.end is None else f"offsets {totals.begin} to {totals.end}"
        text = f"{path}: {where}, {description.totals.messages} messages; {size_text(row['manifest_bytes'])}"
        sys.stdout.write(f"{text}\n")
    else:
        write_rows([row], output, tuple(row))
    for problem in subject.problems:
        messages.error(problem)
    if subject.problems:
        raise typer.Exit(ExitCode.FAILED)


def _write(comparison_json: dict[str, Any], output: OutputFormat, messages: Messages) -> None:
    if output is OutputFormat.TABLE:
        terminal = screen()
        show_all = messages.verbose or terminal.shows_all
        crops = not terminal.shows_all
        for line in diff_lines(comparison_json, terminal.width, color=terminal.color, all_rows=show_all, crops=crops):
            sys.stdout.write(f"{line}\n")
    elif output is OutputFormat.JSON:
        sys.stdout.write(json_text(comparison_json, indent=2) + "\n")
    else:
        rows = [
            *comparison_json["differences"],
            *({"type": "queue", **queue} for queue in comparison_json["queues"]),
            *({"type": "setting", **entry} for entry in comparison_json["config"]),
        ]
        if output is OutputFormat.JSONL:
            listed = ("differences", "queues", "config")
            rest = {name: value for name, value in comparison_json.items() if name not in listed}
            rows.append({"type": "summary", **rest})
        write_rows(rows, output, FIELDS)
