"""Brings what a planner has built onto the disk while its plan is still checked: applying it then waits for less."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from pathlib import Path
from threading import Event

from rmqtool.repair.machine.digest import BuiltFile
from rmqtool.repair.machine.steps import Create, Replace, Step
from rmqtool.store.sink import reported
from rmqtool.store.source import FileSource


@contextmanager
def synced_meanwhile(steps: Iterable[Step]) -> Iterator[None]:
    """Sync the files that steps take whole, during the body.

    Raises:
        WriteError: the disk does not take one. Whoever syncs it later would not be told again.
        UnreadableError: one is gone.
    """
    contents = (step.content for step in steps if isinstance(step, Create | Replace))
    places = [content.place for content in contents if isinstance(content, BuiltFile)]
    over = Event()
    with ThreadPoolExecutor(1) as pool:
        syncing = pool.submit(_sync, places, over)
        try:
            yield
        except BaseException:
            over.set()
            raise
        syncing.result()


def _sync(places: Iterable[Path], over: Event) -> None:
    for place in places:
        if over.is_set():
            return
        with closing(FileSource.open(place)) as source, reported(place):
            os.fsync(source.descriptor)
