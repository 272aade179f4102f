"""Where numba keeps compiled code: beside the package, else in the user's cache, in a folder named for its source.

What lies there is run, so nobody but this user and root may be able to change it. numba itself tells code of another
processor, compiler or file apart, but not that of a constant which another file holds.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import stat
import sys
import tempfile
from collections.abc import Iterator
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Final

from rmqtool.memory import take

LOADING_BYTES: Final = 48 << 20
"""What numba takes with code that is kept, measured."""
COMPILING_BYTES: Final = 104 << 20
"""The same where it compiles what a check of a log needs."""
_PACKAGE: Final = Path(__file__).parents[2]
_SOURCES: Final = ("formats", "scan", "engine/dispatch", "dump")
"""Folders whose files hold kernels, or constants that kernels are compiled with."""
_PREFIX: Final = "kernels-"


@cache
def code_folder() -> Path | None:
    """Where compiled code is read and kept; None where nothing can be: each process compiles what it uses."""
    if not _PACKAGE.is_dir():  # in an archive
        return None
    folders = map(_folder_in, _places())
    return next((folder for folder in folders if folder is not None), None)


@cache
def is_kept(function_name: str) -> bool:
    """Whether code of a function is kept, as far as can be told without a compiler."""
    return any(path.suffix == ".nbi" for path in _kept(function_name))


def has_room() -> bool:
    """Whether numba fits into what is left of a limit of memory; counts it, if it is not loaded yet."""
    return "numba" in sys.modules or take(LOADING_BYTES if is_kept("walk_block") else COMPILING_BYTES)


def forget(function_name: str) -> None:
    """Remove what is kept of a function."""
    for path in _kept(function_name):
        with suppress(OSError):
            path.unlink()


def _kept(function_name: str) -> list[Path]:
    folder = code_folder()
    return [] if folder is None else list(folder.glob(f"*/*.{function_name}-*"))


def _places() -> Iterator[Path]:
    yield Path(__file__).parent / "__pycache__"
    with suppress(RuntimeError):  # no home
        yield Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "rmqtool"


def _folder_in(place: Path) -> Path | None:
    """The folder for the code of this source, made where it is missing; None where it cannot be written or trusted."""
    folder = place / f"{_PREFIX}{_source_digest()}"
    with suppress(OSError):
        place.mkdir(mode=0o700, parents=True, exist_ok=True)
        if not _is_ours(place):
            return None
        if not folder.is_dir():
            for old in place.glob(f"{_PREFIX}*"):
                shutil.rmtree(old, ignore_errors=True)
            folder.mkdir(mode=0o700, exist_ok=True)
        if _is_ours(folder):
            with tempfile.TemporaryFile(dir=folder):
                return folder
    return None


def _is_ours(folder: Path) -> bool:
    """Whether nobody but this user and root can put something at a path: not in it, nor by another folder above it."""
    for path in (folder, *folder.absolute().parents):
        status = path.stat()
        others = stat.S_IWOTH if path != folder and status.st_gid == os.getegid() else stat.S_IWOTH | stat.S_IWGRP
        is_sticky = path != folder and status.st_mode & stat.S_ISVTX
        if status.st_uid not in (os.geteuid(), 0) or (status.st_mode & others and not is_sticky):
            return False
    return True


def _source_digest() -> str:
    digest = hashlib.blake2b(digest_size=8)
    for name in _SOURCES:
        for path in sorted((_PACKAGE / name).rglob("*.py")):
            digest.update(path.read_bytes())
    return digest.hexdigest()
