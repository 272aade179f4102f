"""To which store a directory outside of the named one belongs: by the properties file, and by what lies around it."""

from __future__ import annotations

import os
import pwd
from pathlib import Path

import pytest

from rmqtool.store.config.broker_conf import broker_conf
from rmqtool.store.log_owner import ForeignDirectory, doubtful_link, foreign_directory


@pytest.fixture
def machine(tmp_path: Path) -> Path:
    """A store with a log elsewhere, and a copy of its root."""
    for root in ("original", "copy"):
        (tmp_path / root / "consumequeue").mkdir(parents=True)
        (tmp_path / root / "lock").write_bytes(b"lock")
    (tmp_path / "disk" / "log").mkdir(parents=True)
    (tmp_path / "disk" / "log" / ("0" * 20)).write_bytes(b"x")
    return tmp_path


def asked(machine: Path, root: str, *, named: str | None = None, **properties: object) -> ForeignDirectory | None:
    conf = broker_conf({key: str(value) for key, value in properties.items()}) if properties else None
    directories = (named,) if named is not None else conf.settings().commitlog_directories if conf is not None else ()
    return foreign_directory(machine / root, directories, conf, is_log_named=named is not None)


def test_a_log_elsewhere_is_that_of_the_store_which_the_same_file_names(machine: Path) -> None:
    log, original = machine / "disk" / "log", machine / "original"
    settings = {"storePathRootDir": original, "storePathCommitLog": log}
    assert asked(machine, "original", **settings) is None
    foreign = asked(machine, "copy", **settings)
    assert foreign is not None
    assert (foreign.path, foreign.owner) == (str(log), original)


def test_links_and_other_spellings_of_a_root_are_the_same_store(machine: Path) -> None:
    (machine / "link").symlink_to(machine / "original")
    log = machine / "disk" / "log"
    for root in (machine / "link", f"{machine}/copy/../original/", machine / "original"):
        settings = {"storePathRootDir": root, "storePathCommitLog": log}
        assert asked(machine, "original", **settings) is None
        assert asked(machine, "link", **settings) is None
        assert asked(machine, "copy", **settings) is not None
        assert asked(machine, "copy", named=f"{machine}/original/../disk/log", **settings) is not None


def test_a_path_below_the_root_of_the_file_is_one_below_the_named_store(machine: Path) -> None:
    root = machine / "original"
    assert asked(machine, "copy", storePathRootDir=root, storePathCommitLog=root / "commitlog") is None
    assert asked(machine, "copy", storePathRootDir="store", storePathCommitLog="store/log") is None
    assert asked(machine, "copy", storePathRootDir="~/store", storePathCommitLog="~/store/log") is None


@pytest.mark.parametrize("root", [None, "store", "$HOME/store", "/not/here"])
def test_a_root_that_proves_nothing_leaves_it_to_the_person_who_names_the_log(machine: Path, root: str | None) -> None:
    log = machine / "disk" / "log"
    settings = {"storePathCommitLog": log} | ({"storePathRootDir": root} if root is not None else {})
    foreign = asked(machine, "copy", **settings)
    assert foreign is not None
    assert foreign.owner is None
    assert asked(machine, "copy", named=str(log), **settings) is None


def test_without_a_root_in_the_file_the_store_is_in_the_home_of_its_owner(
    machine: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    user = pwd.struct_passwd(("rmq", "x", os.getuid(), os.getgid(), "", str(machine / "home"), ""))
    monkeypatch.setattr(pwd, "getpwuid", lambda _: user)
    (machine / "home").mkdir()
    (machine / "original").rename(machine / "home" / "store")
    log = machine / "disk" / "log"
    assert asked(machine, "home/store", storePathCommitLog=log) is None
    assert asked(machine, "copy", storePathCommitLog=log) is not None


def test_several_disks_of_one_store_are_its_own(machine: Path) -> None:
    (machine / "disk2").mkdir()
    paths = f"{machine}/original/commitlog,{machine}/disk/log,{machine}/disk2/log"
    assert asked(machine, "original", storePathRootDir=machine / "original", storePathCommitLog=paths) is None
    assert asked(machine, "copy", storePathRootDir=machine / "original", storePathCommitLog=paths) is not None


@pytest.mark.parametrize("directory", ["commitlog", "consumequeue"])
def test_a_directory_in_another_store_is_that_stores(machine: Path, directory: str) -> None:
    target = machine / "original" / directory
    target.mkdir(exist_ok=True)
    if directory == "commitlog":
        foreign = asked(machine, "copy", named=str(target))
        assert foreign is not None
        assert foreign.owner == machine / "original"
    else:
        (machine / "copy" / directory).rmdir()
    (machine / "copy" / directory).symlink_to(target)
    foreign = asked(machine, "copy")
    assert foreign is not None
    assert foreign.owner == machine / "original"


def test_a_log_of_no_other_store_is_nobody_elses(machine: Path) -> None:
    assert asked(machine, "copy", named=str(machine / "disk" / "log")) is None
    (machine / "copy" / "commitlog").symlink_to(machine / "disk" / "log")
    assert asked(machine, "copy") is None


def test_a_link_that_is_newer_than_the_log_is_doubtful(machine: Path) -> None:
    (machine / "copy" / "commitlog").symlink_to(machine / "disk" / "log")
    file = machine / "disk" / "log" / ("0" * 20)
    os.utime(file, (1, 1))
    doubt = doubtful_link(machine / "copy")
    assert doubt is not None
    assert str(machine / "disk" / "log") in doubt
    os.utime(file)
    now_ns = os.lstat(machine / "copy" / "commitlog").st_ctime_ns + 10**9
    os.utime(file, ns=(now_ns, now_ns))
    assert doubtful_link(machine / "copy") is None
    assert doubtful_link(machine / "original") is None
