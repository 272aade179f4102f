"""`rmqtool evidence`: a support bundle that gives the store's verdict elsewhere, made by `rmqtool.evidence`."""

from __future__ import annotations

import secrets
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

import rmqtool
from rmqtool.answer.opened_store import OpenedStore
from rmqtool.commands.messages import messages_of
from rmqtool.commands.options.memory import thread_count
from rmqtool.commands.options.output_files import demand_new
from rmqtool.commands.options.store import (
    BrokerConfOption,
    BrokerVersionOption,
    ObjectFormatOption,
    StoreOptions,
    StorePath,
    command_line,
    lock_of,
    open_store,
    refuse_inside_store,
    tell_opened,
)
from rmqtool.commands.screen import screen
from rmqtool.engine.rules.versions import EXAMINED
from rmqtool.errors import UsageError
from rmqtool.report.screens.evidence_screen import README, evidence_lines
from rmqtool.report.writers import ObjectFormat, json_text
from rmqtool.store.location import StoreLocation
from rmqtool.verify.survey.context import VerifyOptions

if TYPE_CHECKING:
    from rmqtool.evidence.answers import GivenAnswers
    from rmqtool.evidence.bundle import BundleManifest
    from rmqtool.evidence.names import BundleNames
    from rmqtool.evidence.pseudonyms import Pseudonyms
    from rmqtool.evidence.store_copy import CopiedFile
    from rmqtool.evidence.store_ranges import DamagePlaces


def evidence(
    context: typer.Context,
    store: StorePath,
    output: Annotated[Path, typer.Option("--output", metavar="FILE", help="The bundle, a file outside the store.")],
    max_size: Annotated[
        int,
        typer.Option(
            "--max-size",
            metavar="BYTES",
            min=1,
            help="Of a larger store, copy only ranges around damage, and the start of each file.",
        ),
    ] = 4 << 30,
    broker_log: Annotated[
        list[Path] | None,
        typer.Option(
            "--broker-log",
            metavar="FILE",
            help="Include the last 4 MiB of this log of the broker, as far as its lines are known; repeatable.",
        ),
    ] = None,
    without_log: Annotated[
        bool, typer.Option("--without-log", help="Leave the commit log out; the answers are those of this machine.")
    ] = False,
    with_bodies: Annotated[
        bool, typer.Option("--with-bodies", help="Include bodies, keys, tags and property values as they are.")
    ] = False,
    hide_names: Annotated[
        bool,
        typer.Option("--hide-names", help="Replace names of topics, groups and brokers, and addresses, too."),
    ] = False,
    broker_conf: BrokerConfOption = None,
    broker_version: BrokerVersionOption = None,
    form: ObjectFormatOption = ObjectFormat.TABLE,
) -> None:
    """Write a support bundle of a store, without bodies, keys, tags and property values.

    The store is only read. verify and forecast accept the bundle on another machine and give the store's own answers;
    this command checks that they do. Names of topics and groups and hosts are in the bundle without --hide-names, times
    and sizes always.

    Example: rmqtool evidence /home/rocketmq/store --output /tmp/store.tar.zst
    """
    from rmqtool.evidence.broker_log import LOGS_MAX
    from rmqtool.evidence.store_copy import data_bytes

    messages = messages_of(context)
    logs = tuple(broker_log or ())
    if hide_names and with_bodies:
        raise UsageError("--hide-names and --with-bodies contradict each other: bodies hold names, too")
    if len(logs) > LOGS_MAX:
        raise UsageError(f"--broker-log: at most {LOGS_MAX} logs fit into a bundle")
    place = StoreLocation(store)
    options = StoreOptions(broker_conf=broker_conf, broker_version=broker_version)
    opened = open_store(place, options)
    tell_opened(opened, messages)
    refuse_inside_store(output, "a bundle", place, opened.store.settings.commitlog_directories)
    demand_new("--output", output)
    if lock_of(place, opened.store, opened.foreign).is_in_use:
        messages.warn("a broker uses the store: what it writes meanwhile may be in the bundle in part")
    is_small = data_bytes(opened.store, with_log=not without_log, is_redacted=not with_bodies) <= max_size
    with messages.progress("evidence") as progress, tempfile.TemporaryDirectory(prefix="rmqtool-evidence-") as folder:
        request = BundleRequest(
            opened, place, options, output, Path(folder) / "store", logs, progress.show,
            with_log=not without_log, with_bodies=with_bodies, has_ranges_only=not is_small, hides_names=hide_names,
        )  # fmt: skip
        manifest = request.write()
    size = output.stat().st_size
    if form is ObjectFormat.JSON:
        sys.stdout.write(json_text(_result(output, size, manifest), indent=2) + "\n")
        return
    terminal = screen()
    lines = evidence_lines(str(output), size, asdict(manifest), terminal.width, color=terminal.color)
    sys.stdout.writelines(f"{line}\n" for line in lines)


def _result(output: Path, size: int, manifest: BundleManifest) -> dict[str, Any]:
    """What scripts read."""
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


@dataclass(frozen=True)
class BundleRequest:
    """What a bundle is made of.

    Attributes:
        root: where the copy of the store is written before it is packed.
        logs: of the broker.
        has_ranges_only: whether the store is too large for a whole copy.
    """

    opened: OpenedStore
    place: StoreLocation
    options: StoreOptions
    output: Path
    root: Path
    logs: tuple[Path, ...]
    show: Callable[[int, int], None]
    with_log: bool
    with_bodies: bool
    has_ranges_only: bool
    hides_names: bool

    def write(self) -> BundleManifest:
        """Copy the store, compare what is said about both, and write the bundle."""
        from rmqtool.evidence.answers import ask
        from rmqtool.evidence.bundle import ANSWERS, BundleManifest, write_bundle
        from rmqtool.evidence.location import shareable_settings
        from rmqtool.evidence.pseudonyms import Pseudonyms
        from rmqtool.evidence.recorded import HIDDEN_STORE
        from rmqtool.evidence.store_copy import shown_path
        from rmqtool.evidence.store_ranges import DamagePlaces

        opened, store = self.opened, self.opened.store
        names = self._names()
        properties = shareable_settings(opened.conf.properties) if opened.conf is not None else None
        places = DamagePlaces()
        line = command_line(self.place, self.options)
        own = ask(opened, line, VerifyOptions(threads=thread_count()), self._versions(), places.add, names)
        self.root.mkdir()
        pseudonyms = None if names is None else Pseudonyms(remembers=bool(self.logs), names=names)
        files, left_out = self._copy(pseudonyms, places)
        is_whole = self.with_log and not self.has_ranges_only
        of_verify = own.recorded.verify
        manifest = BundleManifest(
            made_ms=int(time.time() * 1000),
            rmqtool_version=rmqtool.__version__,
            store=HIDDEN_STORE if self.hides_names else store.view.label,
            hides_names=self.hides_names,
            is_whole=is_whole,
            is_redacted=not self.with_bodies,
            differences=self._differences(own, properties) if is_whole else (),
            verdict=of_verify.verdict.value,
            findings=of_verify.findings,
            files=tuple(files),
            directories=tuple(shown_path(one, pseudonyms) for one in store.directories) if is_whole else (),
            broker_version=self.options.broker_version,
            properties=properties,
            left_out_files=left_out,
            logs=tuple(f"{number}" if self.hides_names else path.name for number, path in enumerate(self.logs)),
        )
        texts = {"README.txt": README.encode(), ANSWERS: own.recorded.as_text(), **self._log_texts(pseudonyms)}
        write_bundle(self.output, self.root, manifest, texts)
        return manifest

    def _versions(self) -> tuple[str, ...]:
        """Versions whose start forecast shows without options."""
        return (self.opened.rules.version,) if self.opened.is_version_known else EXAMINED

    def _names(self) -> BundleNames | None:
        from rmqtool.evidence.names import BundleNames

        if self.with_bodies:
            return None
        names = BundleNames(secrets.token_bytes(32), hides=self.hides_names)
        names.learn(self.opened.store, self.opened.conf.properties if self.opened.conf is not None else {})
        return names

    def _copy(self, pseudonyms: Pseudonyms | None, places: DamagePlaces) -> tuple[list[CopiedFile], int]:
        from rmqtool.evidence.store_copy import copy_redacted
        from rmqtool.evidence.store_ranges import copy_ranges

        if self.has_ranges_only:
            return copy_ranges(self.opened.store, self.root, pseudonyms, places, with_log=self.with_log)
        copied = copy_redacted(self.opened.store, self.root, pseudonyms, self.show, with_log=self.with_log)
        return copied, 0

    def _differences(self, own: GivenAnswers, properties: dict[str, str] | None) -> tuple[str, ...]:
        """In what the answers from the copy differ."""
        from rmqtool.evidence.answers import ask
        from rmqtool.evidence.location import BundleLocation
        from rmqtool.evidence.recorded import HIDDEN_STORE, differing_verdicts

        label, version = self.opened.store.view.label, self.options.broker_version
        label = HIDDEN_STORE if self.hides_names else label
        location = BundleLocation(self.root, None, label, properties, version)
        copy = open_store(location, StoreOptions(), settles=False)
        line = command_line(Path(label) if self.hides_names else self.place, self.options)
        options = VerifyOptions(threads=thread_count())
        answers = ask(copy, line, options, self._versions(), lambda _finding: None)
        return (
            *own.answers.differences(answers.answers),
            *differing_verdicts(own.recorded, answers.recorded),
        )

    def _log_texts(self, pseudonyms: Pseudonyms | None) -> dict[str, bytes]:
        from rmqtool.evidence.broker_log import end_of_log

        return {f"logs/{number}": end_of_log(path, pseudonyms) for number, path in enumerate(self.logs)}
