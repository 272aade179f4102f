"""Where files of a store lie outside of it: a log in directories of its own, and directories behind links.

A broker keeps `lock`, `checkpoint` and `abort` in the root of its store and nowhere else, so a directory beside one of
them belongs to the store there.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Final

from rmqtool.store.file_kinds import is_broker_directory

_ROOT_FILES: Final = ("lock", "checkpoint", "abort")


def outer_directories(root: Path, log_directories: Iterable[str | Path]) -> Iterator[Path]:
    """Directories outside of a store that hold files of it, without links in their paths.

    Args:
        log_directories: those of its log.
    """
    for path in (*log_directories, *linked_directories(root)):
        if is_outside(root, path):
            yield Path(os.path.realpath(root / path))


def linked_directories(root: Path) -> Iterator[str]:
    """Links at the top of a store where a broker has a directory."""
    with suppress(OSError), os.scandir(root) as listing:
        yield from sorted(entry.name for entry in listing if entry.is_symlink() and is_broker_directory(entry.name))


def root_around(directory: Path, root: Path) -> Path | None:
    """The root of the other store in which a directory lies; None where nothing shows one.

    Args:
        root: the store that uses the directory.
    """
    around = Path(os.path.realpath(directory)).parent
    is_root = any(os.path.lexists(around / name) for name in _ROOT_FILES)
    return around if is_root and not is_same(around, root) else None


def is_outside(root: Path, path: str | Path) -> bool:
    """Whether a path, relative to a store or absolute, leads out of it."""
    return not Path(os.path.realpath(root / path)).is_relative_to(os.path.realpath(root))


def is_same(one: Path, other: Path) -> bool:
    """Whether both are one directory that is there."""
    try:
        return one.samefile(other)
    except OSError:
        return False
