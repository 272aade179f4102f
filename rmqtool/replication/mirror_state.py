"""What a mirror notes in its store, for the next run: whose log it copies, and how far queues and index are built."""

from __future__ import annotations

import json
from contextlib import closing
from dataclasses import asdict, dataclass
from typing import Final

from rmqtool.errors import RefusedError
from rmqtool.quantities import JAVA_LONG_MAX
from rmqtool.report.own_file import OwnFile
from rmqtool.store.sink import DirectorySink
from rmqtool.store.source import read_range
from rmqtool.store.view import StoreView

PATH: Final = ".rmqtool/mirror.json"
SIZE_MAX: Final = 4096


@dataclass(frozen=True)
class MirrorState:
    """The file. Without one, nothing is known.

    Attributes:
        master: HOST:PORT of the replication port.
        built_offset: physical offset up to which queues and index are built; None where they were not built.
    """

    master: str | None = None
    built_offset: int | None = None


def read_state(view: StoreView) -> MirrorState:
    """What the last run noted; nothing where the system died before its bytes were on the disk.

    Raises:
        RefusedError: another file is in its place, or it is damaged.
        UnreadableError: it may not be read.
    """
    entry, place = view.stat(PATH), f"{view.label}/{PATH}"
    if entry is None:
        return MirrorState()
    if entry.is_link or not entry.is_file:
        raise RefusedError(f"{place}: a link, or not a regular file, so not {OwnFile.MIRROR_STATE.text}; remove it")
    with closing(view.open(PATH)) as source:
        content = read_range(source, 0, SIZE_MAX)
    if not content.strip(b"\0"):
        return MirrorState()
    OwnFile.MIRROR_STATE.demand(place, content)
    try:
        fields = json.loads(content)
    except (ValueError, RecursionError) as error:
        raise RefusedError(
            f"{place}: is damaged, so the master of this copy is not known; make sure that HOST:PORT is right, "
            "then remove the file"
        ) from error
    built = fields.get("built_offset")
    is_offset = type(built) is int and 0 <= built <= JAVA_LONG_MAX
    return MirrorState(fields.get("master"), built if is_offset else None)


def write_state(sink: DirectorySink, state: MirrorState) -> None:
    """Note it; padded, so that a shorter text leaves nothing of a longer one.

    Raises:
        WriteError: the disk does not take it.
    """
    content = json.dumps(asdict(state)).encode().ljust(SIZE_MAX - 1) + b"\n"
    sink.create(PATH, SIZE_MAX)
    sink.write_at(PATH, 0, content)
    sink.sync(PATH)
