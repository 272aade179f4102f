"""To which store files belong that lie outside of the one that was named: who repairs a copy keeps off the original.

Two things tell: the broker's properties file, which has `storePathRootDir` (by default `store` in the home of the
broker's user, `MessageStoreConfig`) beside `storePathCommitLog`, and the files of a store around the directory.
"""

from __future__ import annotations

import os
import pwd
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from rmqtool.errors import RefusedError
from rmqtool.store.acquire_lock import demand_free
from rmqtool.store.config.broker_conf import BrokerConf
from rmqtool.store.probe_lock import is_outside, is_same, linked_directories, root_around

_DEFAULT_ROOT: Final = "store"


@dataclass(frozen=True)
class ForeignDirectory:
    """A directory that a store's files are looked for in, and that is another store's.

    Attributes:
        owner: the root of the other store; None where it is not on this machine, or its path is relative.
        reason: what shows it, as a part of a sentence.
    """

    path: str
    owner: Path | None
    reason: str

    def demand_usable(self, root: Path, command: str, *, is_copied: bool = False) -> None:
        """Refuse to change the files of another store, and to copy them while somebody changes them.

        Args:
            is_copied: whether they are only read, for a copy of the store.

        Raises:
            RefusedError: they are not to be changed, or in use.
        """
        if not is_copied:
            raise RefusedError(
                f"{root}: {self.reason}; {command} would change that store's files in {self.path}. "
                f"To change that store, name it: rmqtool {command} {self.owner or 'ROOT'} ...; "
                f"to change this one, copy {self.path} too and name the copy with --commitlog DIR"
            )
        if self.owner is not None:
            demand_free(self.owner)


def foreign_directory(
    root: Path, log_directories: Sequence[str], conf: BrokerConf | None = None, *, is_log_named: bool = False
) -> ForeignDirectory | None:
    """The first directory outside of the store that belongs to another one; None where nothing shows that.

    Args:
        root: the store that was named.
        log_directories: where its log lies, where somebody said so.
        is_log_named: whether a person named the directories of the log, and not the properties file.
    """
    named = conf.settings().commitlog_directories if conf is not None else ()
    named_real = {os.path.realpath(root / path) for path in named}
    for path in log_directories:
        by_conf = None
        if not is_outside(root, path):
            continue
        if conf is not None and os.path.realpath(root / path) in named_real:
            if _is_conf_of(conf, root):
                continue
            by_conf = _by_conf(path, conf, is_log_named=is_log_named)
        if (other := by_conf or _by_root_files(root, path)) is not None:
            return other
    links = (path for path in linked_directories(root) if not (log_directories and path.startswith("commitlog")))
    return next((other for path in links if (other := _by_root_files(root, path)) is not None), None)


def doubtful_link(root: Path) -> str | None:
    """A warning where a link leads to the log, and was made after all that is there: a copy may have got it.

    `cp -a` and `rsync -a` keep links. In a store that a broker runs on, files of the log are newer than the link.
    """
    for name in linked_directories(root):
        target = Path(os.path.realpath(root / name))
        if not name.startswith("commitlog") or not is_outside(root, name):
            continue
        with suppress(OSError):
            newest = max((entry.stat().st_mtime_ns for entry in target.iterdir()), default=0)
            if os.lstat(root / name).st_ctime_ns > newest:
                return (
                    f"{name} is a symbolic link to {target}, newer than all files there: if this store is a copy, they "
                    "are the files of the original, and this command changes them"
                )
    return None


def _by_conf(path: str, conf: BrokerConf, *, is_log_named: bool) -> ForeignDirectory | None:
    """A directory of the log that the properties file names, and that is another store's; else None."""
    written = conf.store_root
    owner = Path(written) if written is not None and written.startswith("/") and Path(written).is_dir() else None
    if is_log_named and owner is None:
        return None  # a person knows better than a file that names no store of this machine
    if written is None:
        reason = f"{conf.path} does not set storePathRootDir, so its store is ~/{_DEFAULT_ROOT} of the broker's user"
    else:
        reason = f"{conf.path} sets storePathRootDir={written}, which is not this store"
    return ForeignDirectory(path, owner, reason)


def _is_conf_of(conf: BrokerConf, root: Path) -> bool:
    if conf.store_root is not None:
        return conf.store_root.startswith("/") and is_same(Path(conf.store_root), root)
    # The homes of whoever may run the store's broker: the store's owner, and the user of this process.
    for user_id in (root.stat().st_uid, os.geteuid()):
        with suppress(KeyError):
            if is_same(Path(pwd.getpwuid(user_id).pw_dir) / _DEFAULT_ROOT, root):
                return True
    return False


def _by_root_files(root: Path, path: str) -> ForeignDirectory | None:
    real = Path(os.path.realpath(root / path))
    around = root_around(real, root) if is_outside(root, path) else None
    if around is None:
        return None
    return ForeignDirectory(str(real), around, f"{path} is in the store {around}")
