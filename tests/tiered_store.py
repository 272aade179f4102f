"""A store with segments that were moved to a tiered store, as a broker's file provider lays them down."""

from __future__ import annotations

from pathlib import Path

from rmqtool.fixtures.damages.tiered import tiered_files
from tests.repair.dledger_stores import records_of


def add_tiered(store: Path, count: int) -> list[str]:
    """Lay the first records of the log down as a tiered store too.

    Returns:
        The paths of its segments, relative to the store: two of the log and one of the queue.
    """
    log = min((store / "commitlog").iterdir())
    files = tiered_files([bytes(record) for record in records_of(log.read_bytes())[:count]])
    for name, content in files.items():
        (store / name).parent.mkdir(parents=True, exist_ok=True)
        (store / name).write_bytes(content)
    return list(files)[:3]
