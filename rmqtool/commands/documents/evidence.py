"""`rmqtool evidence`: a support bundle that gives the store's verdict elsewhere, made by `rmqtool.evidence`."""

from __future__ import annotations

import os
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

import rmqtool
from rmqtool.commands.exit_codes import ExitCode
from rmqtool.commands.messages import messages_of
from rmqtool.commands.options.output_files import demand_new
from rmqtool.commands.options.store import (
    BrokerConfOption,
    BrokerVersionOption,
    OpenedStore,
    StoreOptions,
    StorePath,
    command_line,
    lock_of,
    open_store,
    refuse_inside_store,
)
from rmqtool.commands.reading.forecast import forecast_options
from rmqtool.commands.reading.judgement import assessment_of
from rmqtool.commands.screen import screen
from rmqtool.engine.reading.unread_files import unread_files
from rmqtool.engine.rules.versions import EXAMINED
from rmqtool.report.screens.evidence_screen import README, evidence_lines
from rmqtool.report.writers import json_text
from rmqtool.store.location import StoreLocation
from rmqtool.verdict.command_line import CommandLine
from rmqtool.verdict.tally import FindingTally
from rmqtool.verify.catalog.finding import Finding
from rmqtool.verify.catalog.registry import BY_ID
from rmqtool.verify.survey.context import VerifyOptions

if TYPE_CHECKING:
    from rmqtool.evidence.bundle import BundleManifest


def evidence(
    context: typer.Context,
    store: StorePath,
    output: Annotated[Path, typer.Option("--output", metavar="FILE", help="The bundle, a file outside the store.")],
    max_size: Annotated[
        int, typer.Option("--max-size", metavar="BYTES", min=1, help="Refuse a larger copy, before compression.")
    ] = 4 << 30,
    without_log: Annotated[
        bool, typer.Option("--without-log", help="Leave the commit log out; nothing can be computed from the bundle.")
    ] = False,
    with_bodies: Annotated[
        bool, typer.Option("--with-bodies", help="Include bodies, keys, tags and property values as they are.")
    ] = False,
    broker_conf: BrokerConfOption = None,
    broker_version: BrokerVersionOption = None,
) -> None:
    """Write a support bundle of a store, without bodies, keys, tags and property values.

    The store is only read. verify and forecast accept the bundle on another machine and give the store's own answers;
    this command checks that they do. Names of topics and groups, hosts, times and sizes are in the bundle.

    Example: rmqtool evidence /home/rocketmq/store --output /tmp/store.tar.zst
    """
    from rmqtool.evidence.store_copy import demand_fit

    messages = messages_of(context)
    place = StoreLocation(store)
    options = StoreOptions(broker_conf=broker_conf, broker_version=broker_version)
    opened = open_store(place, options)
    opened.tell(messages)
    refuse_inside_store(output, "a bundle", place, opened.store.settings.commitlog_directories)
    demand_new("--output", output)
    if lock_of(place, opened.store).is_in_use:
        messages.warn("a broker uses the store: what it writes meanwhile may be in the bundle in part")
    demand_fit(opened.store, max_size, with_log=not without_log)
    with messages.progress("evidence") as progress, tempfile.TemporaryDirectory(prefix="rmqtool-evidence-") as folder:
        manifest = _write(
            opened,
            command_line(place, options),
            output,
            Path(folder) / "store",
            progress.show,
            broker_version,
            with_log=not without_log,
            with_bodies=with_bodies,
        )
    here = screen()
    lines = evidence_lines(str(output), output.stat().st_size, asdict(manifest), here.width, colour=here.colour)
    sys.stdout.writelines(f"{line}\n" for line in lines)
    if manifest.differences:
        raise typer.Exit(ExitCode.FINDINGS)


def _write(
    opened: OpenedStore,
    line: CommandLine,
    output: Path,
    root: Path,
    show: Callable[[int, int], None],
    broker_version: str | None,
    *,
    with_log: bool,
    with_bodies: bool,
) -> BundleManifest:
    """Copy the store, compare what is said about both, and write the bundle."""
    from rmqtool.evidence.answers import ask
    from rmqtool.evidence.bundle import BundleManifest, write_bundle
    from rmqtool.evidence.location import BundleLocation, without_secrets
    from rmqtool.evidence.pseudonyms import Pseudonyms
    from rmqtool.evidence.store_copy import copy_redacted

    store = opened.store
    properties = without_secrets(opened.conf.properties) if opened.conf is not None else None
    versions = (opened.rules.version,) if opened.is_version_known else EXAMINED
    options, tally = VerifyOptions(threads=os.cpu_count() or 1), FindingTally()
    starts = forecast_options(opened.conf)

    def count(finding: Finding) -> None:
        tally.add(finding, BY_ID[finding.id].remedy)

    own = ask(store, opened.rules, options, starts, versions, count)
    root.mkdir()
    files = copy_redacted(store, root, None if with_bodies else Pseudonyms(), show, with_log=with_log)
    differences: tuple[str, ...] = ()
    if with_log:
        copy = open_store(BundleLocation(root, None, store.view.label, properties, broker_version), StoreOptions())
        answers = ask(copy.store, copy.rules, options, forecast_options(copy.conf), versions)
        differences = tuple(own.differences(answers))
    assessment = assessment_of(opened, line, "verify", tally, unread_files(store))
    manifest = BundleManifest(
        made_ms=int(time.time() * 1000),
        rmqtool_version=rmqtool.__version__,
        store=store.view.label,
        is_whole=with_log,
        is_redacted=not with_bodies,
        differences=differences,
        verdict=assessment.verdict.value,
        findings=own.summary["findings"],
        files=tuple(files),
        directories=store.directories,
        broker_version=broker_version,
        properties=properties,
    )
    texts = {
        "README.txt": README,
        "findings.jsonl": "".join(f"{json_text(row)}\n" for row in own.rows),
        "forecast.json": json_text(own.forecasts, indent=1),
    }
    write_bundle(output, root, manifest, texts)
    return manifest
