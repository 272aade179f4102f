"""Small stores that a command repairs, each in a folder with what lies beside it, and the command line that does it."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Final

from rmqtool.fixtures.recipe import make_store
from tests.campaign.command import Outcome, run
from tests.campaign.trees import Tree, capture, put_back
from tests.fuzz.tiny_recipes import TINY
from tests.golden_stores import unpack

VERSION: Final = "5.5.0"
YEAR_2020_NS: Final = 1_577_836_800_000_000_000
UNDO_KNOWS_DIRECTORIES: Final = "--undo-dir" in run("undo", "--help").output
RECORD: Final = 403
"""Where the second record of a tiny store begins, some 440 bytes long."""


@dataclass(frozen=True)
class Case:
    """One command on one store.

    Attributes:
        command: recover, salvage or rebuild.
        make: makes the store, below the given folder as `store`, and whatever else the case has.
        options: of the command and of undo, paths among them relative to the folder: `{}` stands for it.
        own: options of the command alone.
        has_backup: whether a backup beside the store shares its files, as `cp -al` makes one.
    """

    name: str
    command: str
    make: Callable[[Path], None]
    options: tuple[str, ...] = ()
    own: tuple[str, ...] = ()
    has_backup: bool = False
    files: dict[str, Tree] = field(default_factory=dict, compare=False)

    @cached_property
    def original(self) -> Tree:
        """The folder before the repair."""
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            self.make(folder)
            if self.has_backup:
                link_tree(folder / "store", folder / "backup")
            _make_old(folder)
            return capture(folder)

    def fresh(self, folder: Path) -> Path:
        """Put the store of this case into a folder; where it lies."""
        put_back(self.original, folder)
        return folder / "store"

    def repair(self, folder: Path) -> Outcome:
        """Run the command."""
        return run(*self.repair_line(folder))

    def repair_line(self, folder: Path) -> list[object]:
        """Its words."""
        options = [option.format(folder) for option in self.options]
        return [self.command, folder / "store", "--yes", "--accept-loss", *self.own, *options]

    def undo(self, folder: Path) -> Outcome:
        """Roll its repair back."""
        return run(*self.undo_line(folder))

    def undo_line(self, folder: Path) -> list[object]:
        """The words of that."""
        options = [option.format(folder) for option in self.options]
        if not UNDO_KNOWS_DIRECTORIES:
            options = options[: options.index("--undo-dir")] if "--undo-dir" in options else options
        return ["undo", folder / "store", "--yes", *options]

    def logs(self, folder: Path) -> tuple[Path, ...]:
        """Directories of the log, in each of which a fence keeps brokers out."""
        named = [Path(option.format(folder)) for option in self.options if "/log" in option]
        return tuple(named) or (folder / "store" / "commitlog",)


def link_tree(store: Path, backup: Path) -> None:
    """What `cp -al` does."""
    for place in [store, *sorted(store.rglob("*"))]:
        target = backup / place.relative_to(store)
        if place.is_dir():
            target.mkdir()
        else:
            os.link(place, target)


def _make_old(folder: Path) -> None:
    """Old modification times and odd modes, all of which a repair that is rolled back has to give back."""
    for number, place in enumerate(sorted(folder.rglob("*"))):
        if place.is_file():
            place.chmod(0o640 if number % 2 else 0o600)
        elif place.is_dir():
            place.chmod(0o750)
        os.utime(place, ns=(YEAR_2020_NS, YEAR_2020_NS + number * 1_000_000_007))


def _tiny(folder: Path, name: str, **settings: str) -> Path:
    store = folder / "store"
    recipe = TINY[name]
    make_store(replace(recipe, settings={**recipe.settings, **settings}), store, VERSION)
    return store


def _flip(place: Path, position: int = RECORD + 200) -> None:
    content = bytearray(place.read_bytes())
    content[position] ^= 0xFF
    place.write_bytes(content)


def crashed(folder: Path) -> None:
    _tiny(folder, "tiny-undispatched")


def kept_elsewhere(folder: Path) -> None:
    """A crash, and a directory for what the repair replaces."""
    crashed(folder)
    (folder / "kept").mkdir()


def many_faults(folder: Path) -> None:
    """A crash, a queue that is gone, an index file of zeros, a checkpoint that is cut and a file of the next queue."""
    store = _tiny(folder, "tiny-crashed")
    shutil.rmtree(store / "consumequeue" / "orders" / "1")
    index = max((store / "index").iterdir())
    index.write_bytes(bytes(index.stat().st_size))
    (store / "checkpoint").write_bytes(b"\7" * 20)
    (store / "consumequeue" / "payments" / "0" / f"{100:020d}").write_bytes(bytes(100))


def two_logs(folder: Path) -> None:
    """A log in two directories, one of them outside of the store, killed before dispatch."""
    store = _tiny(folder, "tiny-undispatched", storePathCommitLog="log-a,log-b")
    (store / "log-b").rename(folder / "log-b")
    second = sorted((store / "log-a").iterdir())[1]
    second.rename(folder / "log-b" / second.name)


def bad_record(folder: Path) -> None:
    store = _tiny(folder, "tiny")
    _flip(min((store / "commitlog").iterdir()))


def bad_record_in_two_logs(folder: Path) -> None:
    two_logs(folder)
    _flip(folder / "store" / "log-a" / f"{0:020d}")


def missing_log_file(folder: Path) -> None:
    """The second of three log files is gone, and a record of the first is damaged."""
    store = _tiny(folder, "tiny-crashed", mappedFileSizeCommitLog="2048")
    files = sorted((store / "commitlog").iterdir())
    files[1].unlink()
    _flip(files[0])


def no_queue(folder: Path) -> None:
    store = _tiny(folder, "tiny")
    shutil.rmtree(store / "consumequeue" / "orders")
    _flip(min((store / "index").iterdir()), 60)


def wrong_queues_in_two_logs(folder: Path) -> None:
    two_logs(folder)
    for queue in (folder / "store" / "consumequeue").rglob("0" * 20):
        _flip(queue, 3)


def compacted(folder: Path) -> None:
    """A store with what a real broker keeps beside the queues, compacted topics and RocksDB; one queue is gone."""
    no_queue(folder)
    with tempfile.TemporaryDirectory() as name:
        real = unpack("broker-5.5.0-compaction", Path(name))
        for neighbour in ("compaction", "rocksdbstore"):
            shutil.copytree(real / neighbour, folder / "store" / neighbour)
    (folder / "store" / "abort").write_bytes(b"1")


def _case(name: str, command: str, make: Callable[[Path], None], *own: str, has_backup: bool = False) -> Case:
    options = ("--commitlog", "{}/store/log-a", "--commitlog", "{}/log-b") if "two" in make.__name__ else ()
    options += ("--undo-dir", "{}/kept") if name == "kept elsewhere" else ()
    return Case(f"{command} {name}", command, make, options, ("--broker-version", VERSION, *own), has_backup)


CASES: Final = {
    case.name: case
    for case in (
        _case("crashed", "recover", crashed),
        _case("many faults", "recover", many_faults, "--full"),
        _case("two logs", "recover", two_logs),
        _case("hard links", "recover", many_faults, "--full", has_backup=True),
        _case("kept elsewhere", "recover", kept_elsewhere),
        _case("bad record", "salvage", bad_record),
        _case("missing file", "salvage", missing_log_file),
        _case("two logs", "salvage", bad_record_in_two_logs),
        _case("hard links", "salvage", bad_record, has_backup=True),
        _case("no queue", "rebuild", no_queue),
        _case("two logs", "rebuild", wrong_queues_in_two_logs),
        _case("neighbours", "rebuild", compacted),
        _case("hard links", "rebuild", no_queue, has_backup=True),
    )
}
"""By name: three stores and more for each command; undo is tried on the repair of each."""
