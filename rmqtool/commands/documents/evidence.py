"""`rmqtool evidence`: a support bundle that gives the store's verdict elsewhere, made by `rmqtool.evidence`."""

from __future__ import annotations

import secrets
import tempfile
import time
from collections import Counter
from collections.abc import Iterable
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

import rmqtool
from rmqtool.commands.messages import messages_of
from rmqtool.commands.options import store as shared
from rmqtool.commands.options.help_groups import option
from rmqtool.commands.options.output_files import demand_new
from rmqtool.commands.options.run import thread_count
from rmqtool.commands.screen import show_object
from rmqtool.engine.rules.versions import EXAMINED
from rmqtool.errors import UsageError
from rmqtool.report.screens.evidence_screen import README, evidence_lines
from rmqtool.report.writers import ObjectFormat
from rmqtool.store.location import StoreLocation
from rmqtool.verify.survey.context import VerifyOptions

if TYPE_CHECKING:
    from rmqtool.evidence.bundle import BundleManifest


def evidence(
    context: typer.Context,
    store: shared.StorePath,
    output: Annotated[Path, option("--output FILE", "The bundle, a file outside the store.")],
    max_size: Annotated[
        int,
        option(
            "--max-size BYTES", "Of a larger store, copy only ranges around damage, and the start of each file.", min=1
        ),
    ] = 4 << 30,
    broker_log: Annotated[
        list[Path] | None,
        option(
            "--broker-log FILE",
            "Include the last 4 MiB of this log of the broker, as far as its lines are known; repeatable.",
        ),
    ] = None,
    without_log: Annotated[
        bool, option("--without-log", "Leave the commit log out; the answers are those of this machine.")
    ] = False,
    with_bodies: Annotated[
        bool, option("--with-bodies", "Include bodies, keys, tags and property values as they are.")
    ] = False,
    hide_names: Annotated[
        bool, option("--hide-names", "Replace names of topics, groups and brokers, and addresses, too.")
    ] = False,
    broker_conf: shared.BrokerConfOption = None,
    broker_version: shared.BrokerVersionOption = None,
    form: shared.ObjectFormatOption = ObjectFormat.TABLE,
) -> None:
    """Write a support bundle of a store, without bodies, keys, tags and property values.

    The store is only read. verify and forecast accept the bundle on another machine and give the store's own answers;
    this command checks that they do. Names of topics and groups and hosts are in the bundle without --hide-names, times
    and sizes always.

    Example: rmqtool evidence /home/rocketmq/store --output /tmp/store.tar.zst
    """
    from rmqtool.evidence.answers import ask
    from rmqtool.evidence.broker_log import LOGS_MAX, end_of_log
    from rmqtool.evidence.bundle import ANSWERS, BundleManifest, write_bundle
    from rmqtool.evidence.location import BundleLocation, shareable_settings
    from rmqtool.evidence.names import BundleNames
    from rmqtool.evidence.pseudonyms import Pseudonyms
    from rmqtool.evidence.recorded import HIDDEN_STORE, differing_verdicts
    from rmqtool.evidence.store_copy import copy_redacted, data_bytes, shown_path
    from rmqtool.evidence.store_ranges import DamagePlaces, copy_ranges

    messages = messages_of(context)
    logs = tuple(broker_log or ())
    if hide_names and with_bodies:
        raise UsageError("--hide-names and --with-bodies contradict each other: bodies hold names, too")
    if len(logs) > LOGS_MAX:
        raise UsageError(f"--broker-log: at most {LOGS_MAX} logs fit into a bundle")
    place = StoreLocation(store)
    store_options = shared.StoreOptions(broker_conf=broker_conf, broker_version=broker_version)
    opened = shared.open_store(place, store_options)
    shared.tell_opened(opened, messages)
    shared.refuse_inside_store(output, "a bundle", place, opened.store.settings.commitlog_directories)
    demand_new("--output", output)
    if shared.lock_of(place, opened.store, opened.foreign).is_in_use:
        messages.warn("a broker uses the store: what it writes meanwhile may be in the bundle in part")
    is_small = data_bytes(opened.store, with_log=not without_log, is_redacted=not with_bodies) <= max_size
    is_whole = is_small and not without_log
    label = HIDDEN_STORE if hide_names else opened.store.view.label
    options = VerifyOptions(threads=thread_count())
    versions = (opened.rules.version,) if opened.is_version_known else EXAMINED  # as forecast shows without options
    with messages.progress("evidence") as progress, tempfile.TemporaryDirectory(prefix="rmqtool-evidence-") as folder:
        names = None
        if not with_bodies:
            names = BundleNames(secrets.token_bytes(32), hides=hide_names)
            names.learn(opened.store, opened.conf.properties if opened.conf is not None else {})
        properties = shareable_settings(opened.conf.properties) if opened.conf is not None else None
        places = DamagePlaces()
        own, recorded = ask(opened, shared.command_line(place, store_options), options, versions, places.add, names)

        root = Path(folder) / "store"
        root.mkdir()
        pseudonyms = None if names is None else Pseudonyms(remembers=bool(logs), names=names)
        left_out = 0
        if is_small:
            files = copy_redacted(opened.store, root, pseudonyms, progress.show, with_log=not without_log)
        else:
            files, left_out = copy_ranges(opened.store, root, pseudonyms, places, with_log=not without_log)

        differences: tuple[str, ...] = ()
        if is_whole:
            location = BundleLocation(root, None, label, properties, broker_version)
            copy = shared.open_store(location, shared.StoreOptions(), settles=False)
            line = shared.command_line(Path(label) if hide_names else place, store_options)
            of_copy, recorded_of_copy = ask(copy, line, options, versions, lambda _finding: None)
            differences = (*own.differences(of_copy), *differing_verdicts(recorded, recorded_of_copy))
        of_verify = recorded.verify
        manifest = BundleManifest(
            made_ms=int(time.time() * 1000),
            rmqtool_version=rmqtool.__version__,
            store=label,
            hides_names=hide_names,
            is_whole=is_whole,
            is_redacted=not with_bodies,
            differences=differences,
            verdict=of_verify.verdict.value,
            findings=of_verify.findings,
            files=tuple(files),
            directories=tuple(shown_path(one, pseudonyms) for one in opened.store.directories) if is_whole else (),
            broker_version=broker_version,
            properties=properties,
            left_out_files=left_out,
            logs=tuple(f"{number}" if hide_names else path.name for number, path in enumerate(logs)),
        )
        texts = {"README.txt": README.encode(), ANSWERS: recorded.as_text()}
        texts |= {f"logs/{number}": end_of_log(path, pseudonyms) for number, path in enumerate(logs)}
        write_bundle(output, root, manifest, texts)
    size = output.stat().st_size

    def lines_of(_: dict[str, Any], width: int, *, color: bool) -> Iterable[str]:
        return evidence_lines(str(output), size, asdict(manifest), width, color=color)

    show_object(_result(output, size, manifest), lines_of, form)


def _result(output: Path, size: int, manifest: BundleManifest) -> dict[str, Any]:
    return {
        "bundle": str(output),
        "bundle_bytes": size,
        "store": manifest.store,
        "verdict": manifest.verdict,
        "findings": manifest.findings,
        "is_whole": manifest.is_whole,
        "is_redacted": manifest.is_redacted,
        "answers": "computed" if manifest.gives_own_answers else "recorded",
        "differences": list(manifest.differences),
        "files": dict(sorted(Counter(file.included.value for file in manifest.files).items())),
        "left_out_files": manifest.left_out_files,
        "broker_logs": list(manifest.logs),
        "hides_names": manifest.hides_names,
    }
