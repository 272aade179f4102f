"""What runs many pieces of work of one kind: threads of this process, or whatever a caller passes in their place."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Protocol, TypeVar

Item = TypeVar("Item")
Result = TypeVar("Result")


class Runner(Protocol):
    """Runs the same work over many items."""

    def map(self, work: Callable[[Item], Result], items: Sequence[Item]) -> Iterator[Result]:
        """Results in the order of the items.

        A runner may send work and items to other machines: both then have to pickle, and work may keep nothing.
        """


@dataclass(frozen=True)
class ThreadRunner:
    """Threads of this process; one, or a single item, runs in the caller's."""

    threads: int

    def map(self, work: Callable[[Item], Result], items: Sequence[Item]) -> Iterator[Result]:
        if self.threads == 1 or len(items) < 2:
            yield from map(work, items)
            return
        with ThreadPoolExecutor(self.threads) as pool:
            yield from pool.map(work, items)
