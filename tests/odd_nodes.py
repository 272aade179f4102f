"""What can be at a file's path and is no file: made there, for the tests of all rooms."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Final


def _socket(path: Path) -> None:
    """A socket's path is short, so it is bound by its name alone."""
    here = Path.cwd()
    os.chdir(path.parent)
    try:
        with socket.socket(socket.AF_UNIX) as listener:
            listener.bind(path.name)
    finally:
        os.chdir(here)


NODES: Final[dict[str, Callable[[Path], None]]] = {
    "FIFO": os.mkfifo,
    "socket": _socket,
    "device": lambda path: path.symlink_to("/dev/null"),
    "directory": Path.mkdir,
    "dangling link": lambda path: path.symlink_to("nothing-is-there"),
    "looping link": lambda path: path.symlink_to(path.name),
}
"""By what messages call it; a device is a link to one, since only root makes devices."""


def put_node(path: Path, node: str) -> None:
    """Put a node where a file may be."""
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.is_dir() and not path.is_symlink():
        path.rmdir()
    path.unlink(missing_ok=True)
    NODES[node](path)
