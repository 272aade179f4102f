"""What a mirror notes in its store, for the next run: whose log it copies, and how far queues and index are built."""

from __future__ import annotations

import json
from contextlib import closing
from dataclasses import asdict, dataclass
from typing import Final

from rmqtool.errors import UnreadableError
from rmqtool.quantities import JAVA_LONG_MAX
from rmqtool.store.sink import DirectorySink
from rmqtool.store.source import read_range
from rmqtool.store.view import StoreView

PATH: Final = ".rmqtool/mirror.json"
SIZE_MAX: Final = 4096


@dataclass(frozen=True)
class MirrorState:
    """The file. Without one, or with one that is damaged, nothing is known.

    Attributes:
        master: HOST:PORT of the replication port.
        built_offset: physical offset up to which queues and index are built; None where they were not built.
    """

    master: str | None = None
    built_offset: int | None = None


def read_state(view: StoreView) -> MirrorState:
    """What the last run noted."""
    try:
        with closing(view.open(PATH)) as source:
            fields = json.loads(read_range(source, 0, SIZE_MAX))
        master, built = fields.get("master"), fields.get("built_offset")
    except (UnreadableError, ValueError, AttributeError, RecursionError):
        return MirrorState()
    is_offset = type(built) is int and 0 <= built <= JAVA_LONG_MAX
    return MirrorState(master if isinstance(master, str) else None, built if is_offset else None)


def write_state(sink: DirectorySink, state: MirrorState) -> None:
    """Note it; padded, so that a shorter text leaves nothing of a longer one.

    Raises:
        WriteError: the disk does not take it.
    """
    content = json.dumps(asdict(state)).encode().ljust(SIZE_MAX - 1) + b"\n"
    sink.create(PATH, SIZE_MAX)
    sink.write_at(PATH, 0, content)
    sink.sync(PATH)
