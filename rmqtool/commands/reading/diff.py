"""`rmqtool diff`: two stores, or a store and a manifest of another. What differs is found in `compare`."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any, Final

import typer

import rmqtool
from rmqtool.commands.exit_codes import ExitCode
from rmqtool.commands.messages import Messages, messages_of
from rmqtool.commands.options.memory import thread_count
from rmqtool.commands.options.output_files import demand_own_files
from rmqtool.commands.options.spark import ConfOption, MasterOption, runner
from rmqtool.commands.options.store import (
    FormatOption,
    OpenedStore,
    ReadStore,
    StoreOptions,
    command_line,
    open_store,
    refuse_inside_store,
)
from rmqtool.commands.screen import screen
from rmqtool.compare.log_side import StoreLog, Terms
from rmqtool.compare.manifest import Description, ManifestLog, write_manifest
from rmqtool.compare.metadata import read_metadata
from rmqtool.compare.result import Comparison, Relation, Side
from rmqtool.compare.run import ComparedStore, CompareOptions, compare
from rmqtool.engine.reading.unread_files import UnreadFiles
from rmqtool.errors import UsageError
from rmqtool.report.own_file import OwnFile
from rmqtool.report.screens.diff_screen import diff_lines, difference_text
from rmqtool.report.text import size_text
from rmqtool.report.writers import OutputFormat, json_text, row_writer
from rmqtool.store.location import StoreLocation, store_location
from rmqtool.verdict.command_line import CommandLine
from rmqtool.verdict.next_step import NextStep, blocked_step, cut_step
from rmqtool.verdict.presence import missing_log, reader_command
from rmqtool.verdict.verdict import Assessment, StoreVerdict

FIELDS: Final = (
    "type", "topic", "queue_id", "queue_offset", "physical_offset", "size", "other_queue_id", "other_queue_offset",
    "other_physical_offset", "reason", "file", "table", "entry", "a", "b", "a_min", "a_max", "b_min", "b_max",
)  # fmt: skip


_Threads = Annotated[
    int | None, typer.Option(metavar="N", min=1, max=256, help="Number of threads (default: one per core).")
]
_WorkDir = Annotated[
    Path | None,
    typer.Option(metavar="DIR", help="Directory for temporary files, if the messages do not fit in memory."),
]
_LogOfA = Annotated[
    list[Path] | None, typer.Option(metavar="DIR", help="Commit log directory of STORE, if elsewhere; repeatable.")
]
_LogOfB = Annotated[
    list[Path] | None, typer.Option(metavar="DIR", help="Commit log directory of STORE_B, if elsewhere; repeatable.")
]


class Compared(StrEnum):
    """What must be the same."""

    REPLICAS = "replicas"
    MESSAGES = "messages"


class Identity(StrEnum):
    """What tells a message from others."""

    UNIQUE_KEY = "unique-key"
    CONTENT = "content"


class Detail(StrEnum):
    """What a manifest has digests of."""

    MESSAGES = "messages"
    BLOCKS = "blocks"


def diff(
    context: typer.Context,
    store: ReadStore,
    other: Annotated[
        StoreLocation | None,
        typer.Argument(metavar="[STORE_B]", help="Store to compare with.", parser=store_location),
    ] = None,
    manifest: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Compare with the store of this manifest.")
    ] = None,
    make_manifest: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write a manifest of STORE, to compare on another machine.")
    ] = None,
    detail: Annotated[
        Detail, typer.Option(help="Digests in a new manifest: of messages, or of blocks only.")
    ] = Detail.MESSAGES,
    compared: Annotated[
        Compared, typer.Option("--as", help="Expect copies of one log, or the same messages at any offset.")
    ] = Compared.REPLICAS,
    identity: Annotated[Identity | None, typer.Option(help="How to recognize a message (default: unique-key).")] = None,
    limit: Annotated[
        int, typer.Option(metavar="N", min=0, max=100_000, help="Maximum number of differences to list of each kind.")
    ] = 20,
    threads: _Threads = None,
    work_dir: _WorkDir = None,
    commitlog_a: _LogOfA = None,
    commitlog_b: _LogOfB = None,
    master: MasterOption = None,
    conf: ConfOption = None,
    output: FormatOption = OutputFormat.TABLE,
) -> None:
    """Compare two stores or replicas: where their logs diverge, and which messages differ.

    Neither store is changed. A manifest replaces a store in a comparison on another machine. The exit code is 3 if
    something differs or was not compared, 4 if something cannot be read.

    Example: rmqtool diff /data/master/store /data/slave/store
    """
    messages = messages_of(context)
    _check(other, manifest, make_manifest, commitlog_b)
    if make_manifest is not None and master is not None:
        raise UsageError("--master has no effect with --make-manifest, which reads one log in order")
    opened = _open(store, commitlog_a, messages)
    if make_manifest is not None:
        terms = Terms(by_content=identity is Identity.CONTENT)
        _make(opened, store, make_manifest, terms, detail, output, messages)
        return
    sides: list[ComparedSide | None] = [ComparedSide(opened, _line(store, commitlog_a)), None]
    terms, described, opened_b = Terms(by_content=identity is Identity.CONTENT), None, None
    if manifest is not None:
        described, terms = _from_manifest(manifest, identity)
    else:
        assert other is not None
        opened_b = _open(other, commitlog_b, messages)
        sides[1] = ComparedSide(opened_b, _line(other, commitlog_b))
    options = CompareOptions(
        by_messages=compared is Compared.MESSAGES,
        limit=limit,
        threads=thread_count(threads),
        folder=work_dir,
    )
    with runner(master, conf, messages) as chosen, messages.progress("diff") as progress:
        far = described if opened_b is None else _subject(opened_b)
        assert far is not None
        comparison = compare(_subject(opened), far, terms, options, progress.show, chosen)
    comparison_json = comparison.as_json()
    comparison_json |= judgement(comparison, difference_text(comparison_json), sides)
    _write(comparison_json, output, messages)
    for problem in comparison.problems:
        messages.error(problem)
    if comparison.problems:
        raise typer.Exit(ExitCode.FAILED)
    if comparison_json["verdict"] != StoreVerdict.OK:
        raise typer.Exit(ExitCode.FINDINGS)


def _check(
    other: StoreLocation | None, manifest: Path | None, make_manifest: Path | None, commitlog_b: list[Path] | None
) -> None:
    given = {"STORE_B": other, "--manifest": manifest, "--make-manifest": make_manifest}
    named = [name for name, value in given.items() if value is not None]
    if not named:
        raise UsageError("nothing to compare with: name STORE_B or --manifest FILE, or use --make-manifest FILE")
    if len(named) > 1:
        raise UsageError(f"{named[0]} and {named[1]} exclude each other; use one of them")
    if commitlog_b and other is None:
        raise UsageError("--commitlog-b needs STORE_B")


def _line(place: StoreLocation, commitlog: list[Path] | None) -> CommandLine:
    return command_line(place, StoreOptions(commitlog))


def _open(place: StoreLocation, commitlog: list[Path] | None, messages: Messages) -> OpenedStore:
    opened = open_store(place, StoreOptions(commitlog))
    opened.tell(messages)
    return opened


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
    refuse_inside_store(path, "a manifest", store, opened.store.settings.commitlog_directories)
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
    row = _made(path, description)
    if output is OutputFormat.TABLE:
        where = (
            "no log"
            if description.totals.end is None
            else f"offsets {description.totals.begin} to {description.totals.end}"
        )
        text = f"{path}: {where}, {description.totals.messages} messages; {size_text(row['manifest_bytes'])}"
        sys.stdout.write(f"{text}\n")
    else:
        writer = row_writer(output.value, sys.stdout, tuple(row))
        writer.write(row)
        writer.close()
    for problem in subject.problems:
        messages.error(problem)
    if subject.problems:
        raise typer.Exit(ExitCode.FAILED)


def _made(path: Path, description: Description) -> dict[str, Any]:
    return {
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
        writer = row_writer(output.value, sys.stdout, FIELDS)
        for row in _rows(comparison_json):
            writer.write(row)
        if output is OutputFormat.JSONL:
            listed = ("differences", "queues", "config")
            writer.write(
                {"type": "summary", **{name: value for name, value in comparison_json.items() if name not in listed}}
            )
        writer.close()


def _rows(comparison_json: dict[str, Any]) -> Iterator[dict[str, Any]]:
    yield from comparison_json["differences"]
    yield from ({"type": "queue", **queue} for queue in comparison_json["queues"])
    yield from ({"type": "setting", **entry} for entry in comparison_json["config"])


# What a comparison comes to: the verdict on it, what was not compared, and the next step.


@dataclass(frozen=True)
class ComparedSide:
    """A side that is a store, and what makes further commands about it."""

    opened: OpenedStore
    line: CommandLine


def judgement(comparison: Comparison, differences: str, sides: Sequence[ComparedSide | None]) -> dict[str, Any]:
    """What the JSON of a comparison ends with.

    Args:
        differences: what differs, as a sentence; empty where nothing does.
        sides: the stores; None for a manifest.
    """
    stores = [side for side in sides if side is not None]
    missing = (missing_log(side.opened.store) for side in stores)
    readers = (reader_command(side.opened.store, side.line("verify")) for side in stores if side.opened.store.problems)
    assessment = Assessment(
        log_missing=next((one for one in missing if one is not None), None),
        unreadable=comparison.problems,
        reader=next(readers, ""),
        inconsistent=differences or None,
        not_looked_at=tuple(_left_out(comparison)),
    )
    step = _step(comparison, assessment, sides)
    return {**assessment.as_json(), "complete": not assessment.not_looked_at, **step.as_json()}


def _left_out(comparison: Comparison) -> Iterator[UnreadFiles]:
    for text in comparison.not_compared:
        yield UnreadFiles("", "not compared", text)
    yield from comparison.unequal_files
    for text in comparison.problems:
        yield UnreadFiles("", "not readable", text)
    if comparison.unresolved_blocks:
        text = (
            f"which messages differ in blocks: {comparison.unresolved_blocks}; the manifest has no digests of messages"
        )
        yield UnreadFiles("commitlog", "not compared", text)


def _step(comparison: Comparison, assessment: Assessment, sides: Sequence[ComparedSide | None]) -> NextStep:
    if (step := blocked_step(assessment)) is not None:
        return step
    if assessment.verdict is StoreVerdict.OK:
        return NextStep(None, "nothing to do")
    if assessment.verdict is StoreVerdict.NOT_FULLY_CHECKED:
        return NextStep(None, "what was left out may differ; rmqtool verify checks each store by itself", True)
    pairs: list[tuple[Side, ComparedSide]] = [
        (result, side) for result, side in zip((comparison.a, comparison.b), sides, strict=True) if side is not None
    ]
    for result, side in pairs:
        if result.tail is not None and side.line.is_local:
            return cut_step(side.line, f"recover --cut-at {result.tail.begin}")
    for result, side in pairs:
        if result.totals.bad_ranges:
            return NextStep(side.line("verify"), "the commit log of this store is damaged; this lists what is wrong:")
    shorter = {Relation.A_IS_PREFIX: "A", Relation.B_IS_PREFIX: "B"}.get(comparison.relation)
    if shorter is not None:
        return NextStep(None, f"{shorter} ends earlier; a person must decide whether that store is complete", True)
    return NextStep(None, "a person must decide which store is right, A or B", True)
