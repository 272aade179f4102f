"""The fence: a file in the log's directory with which no broker loads the store, and so none deletes from it.

Broker: `MappedFileQueue#load` fails on a file of the wrong length, before anything is removed. An empty file would be
deleted instead by brokers from 5.1.3 on.
"""

from __future__ import annotations

from rmqtool.repair.machine.disk import Disk, partial_file
from rmqtool.repair.machine.store_paths import StorePaths, fence_like

_TEXT = """rmqtool is repairing this store, or was killed during a repair. No broker loads the store while this file is
here. Do not delete it by hand: the store may be half repaired. To restore the store, run

    rmqtool undo {root}
"""


def raise_fences(places: StorePaths, disk: Disk) -> None:
    """Put one in each directory of the log, on the disk when this returns; those that are there stay.

    Raises:
        WriteError: one cannot be written.
    """
    text = _TEXT.format(root=places.root.resolve()).encode("utf-8", "backslashreplace")
    for fence in places.fences:
        if not fence.exists():
            disk.publish(fence, text, fence_like(fence.parent))


def lower_fences(places: StorePaths, disk: Disk) -> None:
    """Take them away; brokers load the store again.

    Raises:
        WriteError: one cannot be removed.
    """
    for fence in places.fences:
        for file in (partial_file(fence), fence):
            if file.exists():
                disk.remove(file)
                disk.sync_directory(file.parent)


def is_fenced(places: StorePaths) -> bool:
    """Whether any directory of the log has one."""
    return any(fence.exists() for fence in places.fences)
