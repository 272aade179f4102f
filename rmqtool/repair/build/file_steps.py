"""Turns what was built into steps: only files that differ are touched, and what nobody needs is removed."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

from rmqtool.engine.dispatch.derived_writer import BATCH_QUEUES, EXTENSIONS, QUEUES
from rmqtool.engine.dispatch.index_writer import DIRECTORY as INDEX
from rmqtool.engine.dispatch.index_writer import number_behind
from rmqtool.errors import UnreadableError
from rmqtool.repair.build.request import BuildResult
from rmqtool.repair.machine.digest import digest_of, digest_of_content
from rmqtool.repair.machine.steps import Create, Remove, Replace, Step, remove_file
from rmqtool.store.content import FilePart
from rmqtool.store.directory import QueueFiles, Store
from rmqtool.store.view import StoreView

_NS_PER_MS = 1_000_000


def queue_steps(store: Store, built: BuildResult, queue_filter: Callable[[str, int], bool], why: str) -> Iterator[Step]:
    """Steps that make the wanted queues, and their extensions, what was built.

    Raises:
        UnreadableError: a file of the store may not be read.
    """
    for root, queues in (
        (QUEUES, store.queues),
        (EXTENSIONS, store.extensions),
        (BATCH_QUEUES, store.batch_queues),
    ):
        staged_files = _staged(built.directory, root)
        if root == EXTENSIONS and not staged_files:
            continue
        for path in sorted(staged_files):
            time_ms = built.file_times_ms.get(path)
            mtime_ns = None if time_ms is None else max(0, time_ms) * _NS_PER_MS
            yield from file_step(store.view, path, staged_files[path], why, mtime_ns)
        for queue in queues.values():
            if queue_filter(queue.topic, queue.queue_id):
                yield from _left_over(store.view, queue, staged_files)


def index_steps(store: Store, built: BuildResult, why: str) -> Iterator[Step]:
    """Steps that make the index what was built. Its files count by their order: those that are there keep their names.

    Raises:
        UnreadableError: a file of the store may not be read.
    """
    staged_files = _staged(built.directory, INDEX)
    there = [entry.path for entry in store.index_files]
    last = ""
    for number, name in enumerate(sorted(staged_files)):
        if number < len(there):
            yield from file_step(store.view, there[number], staged_files[name], why)
            last = there[number]
            continue
        # A broker goes on with the file whose name is the last one.
        path = name if name > last else number_behind(last)
        yield from file_step(store.view, path, staged_files[name], why)
        last = path
    for path in there[len(staged_files) :]:
        yield remove_file(store.view, path, "the index does not need this file")


def file_step(view: StoreView, path: str, place: Path, why: str, mtime_ns: int | None = None) -> Iterator[Step]:
    """The step that makes a file what was built; none where it is so already.

    Raises:
        UnreadableError: something else has the path, or the file may not be read.
    """
    content = FilePart.whole(place)
    after = digest_of_content(content)
    entry = view.stat(path)
    if entry is None:
        yield Create(path, content, after, why, mtime_ns)
        return
    if not entry.is_file:
        raise UnreadableError(f"{path}: not a file")
    with closing(view.open(path)) as source:
        before = digest_of(source, 0, source.size)
    if before != after:
        yield Replace(path, content, before, after, why)


def _left_over(view: StoreView, queue: QueueFiles, staged_files: dict[str, Path]) -> Iterator[Remove]:
    for segment in queue.segments:
        if segment.path not in staged_files:
            yield remove_file(view, segment.path, "no record of the commit log belongs in this file")


def _staged(directory: Path, root: str) -> dict[str, Path]:
    """Files that were built, by their path in the store."""
    top = directory / root
    return {str(path.relative_to(directory)): path for path in top.rglob("*") if path.is_file()}
