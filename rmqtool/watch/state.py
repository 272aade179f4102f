"""Progress of a watch, kept in a file so that a restart continues there; the file is never in the store."""

from __future__ import annotations

import json
import os
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from rmqtool.engine.segments.log_position import Position
from rmqtool.errors import RefusedError
from rmqtool.report.own_file import OwnFile, read_own, replace_own

_FORMAT: Final = "rmqtool-watch-state-1"
_SIZE_MAX: Final = 1 << 20
_COUNTS: Final = ("records", "units", "entries", "verified_bytes", "skipped_bytes", "alerts", "restarts")


@dataclass
class WatchCounts:
    """Counts since the state began.

    Attributes:
        skipped_bytes: of the log that retention removed before they were checked.
        alerts: how often a limit was passed.
        restarts: how often a broker was started.
    """

    records: int = 0
    units: int = 0
    entries: int = 0
    verified_bytes: int = 0
    skipped_bytes: int = 0
    alerts: int = 0
    restarts: int = 0
    findings: Counter[str] = field(default_factory=Counter)


@dataclass
class WatchState:
    """Where a watch continues.

    Attributes:
        position: up to where the log is checked; None before the first look at a log.
        first_offset: where that began.
        index_file: name of the last full index file that was checked.
        broker: what tells one run of a broker from the next, as it was last seen.
        restart_end: where the log ended when a broker was last seen to start.
    """

    position: Position | None = None
    first_offset: int | None = None
    index_file: str | None = None
    broker: str | None = None
    restart_end: int = 0
    counts: WatchCounts = field(default_factory=WatchCounts)

    def save(self, path: Path) -> None:
        """Write the file, whole or not at all.

        Raises:
            RefusedError: another file is there.
            WriteError: it cannot be written.
        """
        document = {
            "format": _FORMAT,
            "position": None if self.position is None else self.position.as_json(),
            "first_offset": self.first_offset,
            "index_file": self.index_file,
            "broker": self.broker,
            "restart_end": self.restart_end,
            "counts": {**vars(self.counts), "findings": dict(self.counts.findings)},
        }
        replace_own(path, OwnFile.WATCH_STATE, json.dumps(document))


def load_state(path: Path, root: Path) -> WatchState:
    """The state in a file; a new one where there is none.

    Raises:
        RefusedError: it would lie in the store, or the file is no state of `watch`.
        UnreadableError: it may not be read.
    """
    if Path(os.path.realpath(path)).is_relative_to(os.path.realpath(root)):
        raise RefusedError(f"{path}: the state file must be outside the store, because watch never writes to it")
    raw = read_own(path, OwnFile.WATCH_STATE, _SIZE_MAX)
    if raw is None:
        return WatchState()
    try:
        return _state_of(json.loads(raw))
    except (ValueError, KeyError, TypeError, AttributeError, OverflowError, RecursionError) as error:
        raise RefusedError(f"{path}: is damaged, or a state file of another version of watch") from error


def _state_of(document: dict[str, Any]) -> WatchState:
    if document["format"] != _FORMAT:
        raise ValueError(document["format"])
    position, counts = document["position"], document["counts"]
    index_file, broker = document["index_file"], document["broker"]
    return WatchState(
        None if position is None else Position.parse(position),
        None if document["first_offset"] is None else int(document["first_offset"]),
        None if index_file is None else str(index_file),
        None if broker is None else str(broker),
        int(document["restart_end"]),
        WatchCounts(
            **{name: int(counts[name]) for name in _COUNTS},
            findings=Counter({str(kind): int(count) for kind, count in counts["findings"].items()}),
        ),
    )
