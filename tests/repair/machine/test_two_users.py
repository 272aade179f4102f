"""Root repairs a store, and the user to whom it belongs lives with it: two real users, each in a process of its own."""

from __future__ import annotations

import codecs
import ctypes
import os
import pickle
import tempfile
import traceback
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from rmqtool.errors import RefusedError, RmqtoolError
from rmqtool.repair.machine.apply import apply_plan
from rmqtool.repair.machine.disk import Disk
from rmqtool.repair.machine.plan import OWN_DIRECTORY
from rmqtool.repair.machine.session import Session
from rmqtool.repair.machine.store_paths import StorePaths
from rmqtool.repair.machine.undo import is_unsettled, repairs, settle, undo_latest
from tests.repair.small_stores import LOG, PLANS, QUEUE, Counting, die, files_of, recovery, small_store
from tests.store_state import assert_store_unchanged

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="needs the superuser, who can become somebody else")

OWNER = 65534
"""The broker's user here: `nobody`, who may do nothing but with his own."""
ROOT = 0
LIBC = ctypes.CDLL(None)
PR_SET_DUMPABLE = 4
for encoding in ("ascii", "latin-1"):
    codecs.lookup(encoding)  # what is imported late could not be read by another user


@pytest.fixture
def folder() -> Iterator[Path]:
    """A directory that every user may enter, unlike those of pytest."""
    with tempfile.TemporaryDirectory() as name:
        Path(name).chmod(0o755)
        yield Path(name)


@pytest.fixture
def places(folder: Path) -> StorePaths:
    return StorePaths(owned(small_store(folder / "store")))


def owned(root: Path, owner: int = OWNER) -> Path:
    times = {path: path.stat().st_mtime_ns for path in (root, *root.rglob("*"))}
    for path, mtime_ns in times.items():
        os.chown(path, owner, owner)
        os.utime(path, ns=(mtime_ns, mtime_ns))
    return root


def as_user(user: int, work: Callable[[], object], umask: int = 0o022) -> RmqtoolError | None:
    """Do something as a user; the error it ended with, if it is one of rmqtool's."""
    reading, writing = os.pipe()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # forking while another test's threads sleep
        child = os.fork()
    if child == 0:
        code = 1
        try:
            os.umask(umask)
            os.setgroups([])
            os.setresgid(user, user, user)
            os.setresuid(user, user, user)
            LIBC.prctl(PR_SET_DUMPABLE, 1, 0, 0, 0)  # as a program that the user starts: its own /proc is open to it
            try:
                work()
            except RmqtoolError as error:
                os.write(writing, pickle.dumps(error))
            code = 0
        except BaseException:  # noqa: BLE001 - the parent sees the code only
            os.write(2, traceback.format_exc().encode())
        finally:
            os._exit(code)
    os.close(writing)
    with os.fdopen(reading, "rb") as pipe:
        told = pipe.read()
    _, status = os.waitpid(child, 0)
    assert os.WIFSIGNALED(status) or os.WEXITSTATUS(status) == 0
    return pickle.loads(told) if told else None  # noqa: S301 - what the child above wrote


def repair(places: StorePaths, name: str) -> None:
    """As a command does it: the staging first."""
    with Session(places, makes_file=False) as session, session.staging() as staging:
        apply_plan(PLANS[name](places, staging), places, session=session)


@pytest.mark.parametrize("umask", [0o022, 0o077, 0o000], ids=oct)
@pytest.mark.parametrize("name", PLANS)
def test_what_root_repairs_the_owner_rolls_back(places: StorePaths, name: str, umask: int) -> None:
    before = files_of(places.root)
    (places.root / "lock").unlink()
    assert as_user(ROOT, lambda: repair(places, name), umask) is None
    others = {str(path) for path in places.root.rglob("*") if path.lstat().st_uid != OWNER}
    assert others == set()
    open_to_all = {str(path) for path in (places.root / OWN_DIRECTORY).rglob("*") if path.lstat().st_mode & 0o007}
    assert open_to_all == {
        str(path) for path in (places.root / OWN_DIRECTORY).rglob("files/*") if path.lstat().st_mode & 0o007
    }
    assert as_user(OWNER, lambda: repairs(places)) is None
    assert as_user(OWNER, lambda: undo_latest(places), umask) is None
    assert files_of(places.root) == before
    assert not (places.root / OWN_DIRECTORY).exists()


@pytest.mark.parametrize("name", PLANS)
def test_what_the_owner_repairs_root_rolls_back(places: StorePaths, name: str) -> None:
    before = files_of(places.root)
    assert as_user(OWNER, lambda: repair(places, name)) is None
    assert as_user(ROOT, lambda: undo_latest(places), 0o077) is None
    assert files_of(places.root) == before


@pytest.mark.parametrize("change", range(10, 90, 8))
def test_a_repair_of_root_that_was_killed_is_ended_by_the_owner(places: StorePaths, change: int) -> None:
    before = files_of(places.root)

    def killed() -> None:
        with Session(places, Disk(Counting(change, die))) as session, session.staging() as staging:
            apply_plan(PLANS["rebuilding"](places, staging), places, session=session)

    as_user(ROOT, killed, 0o077)
    assert as_user(OWNER, lambda: undo_latest(places)) is None
    assert {path: state for path, state in files_of(places.root).items() if not path.startswith(".rmqtool")} == before
    assert not is_unsettled(places)
    assert as_user(OWNER, lambda: repair(places, "recovery")) is None


@pytest.mark.parametrize("name", ["ranges", "files/5", "manifest"])
def test_what_may_not_be_read_is_told_before_anything_is_changed(places: StorePaths, name: str) -> None:
    """The first version left `ranges` to root, and raised the fence before it noticed."""
    assert as_user(ROOT, lambda: repair(places, "recovery")) is None
    kept = places.undo / "1" / name
    os.chown(kept, ROOT, ROOT)
    kept.chmod(0o600)
    with assert_store_unchanged(places.root):
        error = as_user(OWNER, lambda: undo_latest(places))
    assert error is not None
    assert name in str(error)
    assert "permission" in str(error)


@pytest.mark.parametrize("path", [LOG, QUEUE])
def test_a_file_of_somebody_else_is_told_before_anything_is_changed(places: StorePaths, path: str) -> None:
    assert as_user(ROOT, lambda: repair(places, "recovery")) is None
    os.chown(places.root / path, ROOT, ROOT)
    with assert_store_unchanged(places.root):
        error = as_user(OWNER, lambda: undo_latest(places))
    assert path in str(error)
    assert "user 0" in str(error)


def test_a_directory_in_which_the_owner_may_not_write_is_told_first(places: StorePaths) -> None:
    assert as_user(ROOT, lambda: repair(places, "recovery")) is None
    directory = places.root / "consumequeue/TopicA/0"
    os.chown(directory, ROOT, ROOT)
    directory.chmod(0o755)
    with assert_store_unchanged(places.root):
        error = as_user(OWNER, lambda: undo_latest(places))
    assert "not writable" in str(error)


def test_a_journal_of_a_third_user_is_refused(places: StorePaths) -> None:
    assert as_user(OWNER, lambda: repair(places, "recovery")) is None
    os.chown(places.undo / "1", 4711, 4711)
    for user in (ROOT, OWNER):
        with assert_store_unchanged(places.root):
            assert isinstance(as_user(user, lambda: undo_latest(places)), RefusedError)


@pytest.mark.parametrize("link", ["index", "commitlog"])
def test_a_link_to_what_is_not_the_owners_is_not_followed(places: StorePaths, folder: Path, link: str) -> None:
    """`config` could lead to /etc otherwise, and root would write there what the store's owner likes."""
    outer = folder / "outer"
    (places.root / link).rename(outer)
    owned(outer, ROOT)
    (places.root / link).symlink_to(outer)
    os.chown(places.root / link, OWNER, OWNER, follow_symlinks=False)
    with assert_store_unchanged(outer):
        name = "rebuilding" if link == "index" else "cutting"
        assert isinstance(as_user(ROOT, lambda: repair(StorePaths(places.root), name)), RefusedError)


def test_root_settles_nothing_that_the_owner_made_up(places: StorePaths, folder: Path) -> None:
    """A fence, and a journal that asks for a file of root's to be removed."""
    precious = folder / "precious"
    precious.write_bytes(b"of root")
    assert as_user(OWNER, lambda: repair(places, "recovery")) is None
    manifest = places.undo / "1" / "manifest"
    text = manifest.read_text().replace("consumequeue/TopicB/3/00000000000000000000", "../precious")
    manifest.write_text(text)
    (places.undo / "1" / "undoing").write_bytes(b"{}")
    (places.root / "commitlog/rmqtool-repair-in-progress").write_bytes(b"fence")
    with assert_store_unchanged(folder):
        assert isinstance(as_user(ROOT, lambda: settle(places)), RefusedError)


def test_a_file_of_root_is_not_given_away_through_a_copy(places: StorePaths) -> None:
    """The journal keeps files by copies where another disk does; a name for root's file is no copy."""
    assert as_user(ROOT, lambda: repair(places, "recovery")) is None
    kept = places.undo / "1" / "ranges"
    (places.root.parent / "other").mkdir()
    secret = places.root.parent / "other" / "secret"
    secret.write_bytes(kept.read_bytes())
    secret.chmod(0o600)
    kept.unlink()
    os.link(secret, kept)
    with assert_store_unchanged(places.root):
        assert isinstance(as_user(ROOT, lambda: undo_latest(places)), RefusedError)


def test_staging_of_a_run_is_nobody_elses(places: StorePaths) -> None:
    def look() -> None:
        with Session(places) as session, session.staging() as staging:
            assert staging.stat().st_uid == ROOT
            assert staging.stat().st_mode & 0o777 == 0o700

    assert as_user(ROOT, look) is None
    assert recovery(places, places.root.parent)
