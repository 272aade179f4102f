"""A runner that does what may go wrong on other machines."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterator, Sequence
from typing import Any


class PicklingRunner:
    """Sends work and items through a pickle, and does each once more behind the attempt that counts.

    So may a task of Spark that was given up for dead, and is not.
    """

    def map(self, work: Callable[[Any], Any], items: Sequence[Any]) -> Iterator[Any]:
        for item in items:
            found, _ = (_away(work, item) for _ in range(2))
            yield found


def _away(work: Callable[[Any], Any], item: Any) -> Any:
    sent, what = pickle.loads(pickle.dumps((work, item)))  # noqa: S301 - our own
    return pickle.loads(pickle.dumps(sent(what)))  # noqa: S301
