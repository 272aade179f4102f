"""Checks that files which a command writes at its end can be written, before hours of work start."""

from __future__ import annotations

import os
import stat
from collections.abc import Mapping
from pathlib import Path

from rmqtool.errors import RefusedError, UsageError, WriteError
from rmqtool.report.own_file import OwnFile, demand_own
from rmqtool.store.source import reason


def refuse_dash(option: str, path: Path) -> None:
    """Refuse `-`, which means standard output to many programs and the name of a file to this one."""
    if str(path) == "-":
        raise UsageError(f"{option}: - is not the name of a file: rmqtool writes this to a file only; name one")


def demand_writable(files: Mapping[str, Path | None]) -> None:
    """Refuse files that cannot be written, by option: UsageError for `-`, else WriteError. Nothing is changed."""
    for option, path in files.items():
        if path is not None:
            refuse_dash(option, path)
            try:
                try:
                    mode = path.stat().st_mode
                except FileNotFoundError:
                    os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666))
                    path.unlink()
                else:
                    if stat.S_ISREG(mode) or stat.S_ISDIR(mode):  # a pipe or device would be waited for
                        os.close(os.open(path, os.O_WRONLY | os.O_CLOEXEC))
            except (OSError, ValueError) as error:
                why = reason(error) if isinstance(error, OSError) else "not a file name"
                raise WriteError(f"{option}: {path}: {why}") from error


def demand_own_files(files: Mapping[str, tuple[Path | None, OwnFile]]) -> None:
    """Refuse files that would replace something else; errors as of `demand_writable` and `open_own`."""
    for option, (path, kind) in files.items():
        if path is not None:
            refuse_dash(option, path)
            demand_own(path, kind)
            demand_writable({option: path})
            if not os.access(path.absolute().parent, os.W_OK | os.X_OK):  # where the new one is written
                raise WriteError(f"{option}: {path.absolute().parent}: permission denied")


def demand_new(option: str, path: Path) -> None:
    """Refuse a file that is there already, as RefusedError, or cannot be made; errors as of `demand_writable`."""
    refuse_dash(option, path)
    if os.path.lexists(path):
        raise RefusedError(f"{option}: {path}: already exists; nothing was written")
    demand_writable({option: path})


def write_new(option: str, path: Path, text: str) -> None:
    """Write a file that was not there before, whole or not at all; RefusedError or WriteError as of `demand_new`."""
    try:
        with path.open("x", encoding="utf-8", errors="backslashreplace") as file:
            try:
                file.write(text)
                file.flush()
                os.fsync(file.fileno())
            except BaseException:
                path.unlink(missing_ok=True)
                raise
    except FileExistsError:
        raise RefusedError(f"{option}: {path}: already exists; nothing was written") from None
    except OSError as error:
        raise WriteError(f"{option}: {path}: {reason(error)}") from error


def demand_directory(option: str, path: Path) -> None:
    """Refuse a directory that cannot be made or written into; it is not made. Errors as of `demand_writable`."""
    refuse_dash(option, path)
    nearest = path.absolute()
    while not nearest.exists() and nearest != nearest.parent:
        nearest = nearest.parent
    if not nearest.is_dir():
        raise WriteError(f"{option}: {nearest}: not a directory")
    if not os.access(nearest, os.W_OK | os.X_OK):
        raise WriteError(f"{option}: {nearest}: Permission denied")
