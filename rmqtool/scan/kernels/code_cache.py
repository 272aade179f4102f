"""Where numba keeps compiled code: beside the package, else in the user's cache, in a folder named for its source.

What lies there is run, so nobody but this user and root may be able to change it. numba itself tells code of another
processor, compiler or file apart, but not that of a constant which another file holds.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import stat
import tempfile
from collections.abc import Iterator
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Final

_PACKAGE: Final = Path(__file__).parents[2]
_SOURCES: Final = ("formats", "scan", "engine/dispatch", "dump")
"""Folders whose files hold kernels, or constants that kernels are compiled with."""
_PREFIX: Final = "kernels-"


@cache
def code_folder() -> Path | None:
    """Where compiled code is read and kept, made if it is missing; None where nothing can be kept or trusted."""
    return next((folder for folder in _folders() if _is_writable(folder)), None)


@cache
def is_kept(function_name: str) -> bool:
    """True if code of a function is cached, as far as is known without a compiler; nothing is created or removed."""
    return any(_kept(folder, function_name, ".nbi") for folder in _folders() if folder.is_dir() and _is_ours(folder))


def forget(function_name: str) -> None:
    """Remove the cached code of a function."""
    if (folder := code_folder()) is not None:
        for path in _kept(folder, function_name):
            with suppress(OSError):
                path.unlink()


def _kept(folder: Path, function_name: str, suffix: str = "") -> list[Path]:
    return list(folder.glob(f"*/*.{function_name}-*{suffix}"))


def _folders() -> Iterator[Path]:
    """Folders for the code of this source, the best one first."""
    if not _PACKAGE.is_dir():  # in an archive
        return
    name = f"{_PREFIX}{_source_digest()}"
    yield Path(__file__).parent / "__pycache__" / name
    with suppress(RuntimeError):  # no home
        yield Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "rmqtool" / name


def _is_writable(folder: Path) -> bool:
    """True if code can be cached in a folder, which is created; folders for other sources beside it are removed."""
    place = folder.parent
    with suppress(OSError):
        place.mkdir(mode=0o700, parents=True, exist_ok=True)
        if not _is_ours(place):
            return False
        if not folder.is_dir():
            for old in place.glob(f"{_PREFIX}*"):
                shutil.rmtree(old, ignore_errors=True)
            folder.mkdir(mode=0o700, exist_ok=True)
        if _is_ours(folder):
            with tempfile.TemporaryFile(dir=folder):
                return True
    return False


def _is_ours(folder: Path) -> bool:
    """True if only this user and root can put something at a path, or replace a folder above it."""
    for path in (folder, *folder.absolute().parents):
        status = path.stat()
        others = stat.S_IWOTH if path != folder and status.st_gid == os.getegid() else stat.S_IWOTH | stat.S_IWGRP
        is_sticky = path != folder and status.st_mode & stat.S_ISVTX
        if status.st_uid not in (os.geteuid(), 0) or (status.st_mode & others and not is_sticky):
            return False
    return True


@cache
def _source_digest() -> str:
    digest = hashlib.blake2b(digest_size=8)
    for name in _SOURCES:
        for path in sorted((_PACKAGE / name).rglob("*.py")):
            digest.update(path.read_bytes())
    return digest.hexdigest()
