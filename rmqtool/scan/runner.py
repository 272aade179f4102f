"""Run many splits of work of one kind: in threads of this process, or with a function of the caller."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, TypeVar, cast

if TYPE_CHECKING:
    from concurrent.futures import Future

OnProgress = Callable[[int, int], None]
"""Is told how much is done, and of how much."""
Item = TypeVar("Item")
Result = TypeVar("Result")


class Runner(Protocol):
    """Runs the same work over many items."""

    def map(self, work: Callable[[Item], Result], items: Sequence[Item]) -> Iterator[Result]:
        """Results in the order of the items.

        A runner may send work and items to other machines: both then have to pickle, and work may keep nothing.
        """


def read_ahead(blocks: Iterator[Item]) -> Generator[Item, None, None]:
    """Yield the blocks in order, while a thread reads the next one."""
    from concurrent.futures import ThreadPoolExecutor

    end = object()
    with ThreadPoolExecutor(1) as pool:
        following = pool.submit(next, blocks, end)
        while (block := following.result()) is not end:
            following = pool.submit(next, blocks, end)
            yield cast("Item", block)


@dataclass(frozen=True)
class ThreadRunner:
    """Threads of this process; one, or a single item, runs in the caller's.

    Little is begun ahead of whoever takes the results, so that little is left to wait for where nobody takes them.
    """

    threads: int

    def map(self, work: Callable[[Item], Result], items: Sequence[Item]) -> Generator[Result, None, None]:
        if self.threads == 1 or len(items) < 2:
            yield from map(work, items)
            return
        from concurrent.futures import ThreadPoolExecutor  # 10 ms that one thread need not wait for

        waiting: deque[Future[Result]] = deque()
        with ThreadPoolExecutor(self.threads) as pool:
            try:
                for item in items:
                    waiting.append(pool.submit(work, item))
                    if len(waiting) > 2 * self.threads:
                        yield waiting.popleft().result()
                while waiting:
                    yield waiting.popleft().result()
            finally:
                for future in waiting:
                    future.cancel()
