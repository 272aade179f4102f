"""Where permissions keep a user from a part of a store, each command names it, and who may read it."""

from __future__ import annotations

import json
import os
import pwd
from shlex import quote

import pytest

from rmqtool.commands.repairs import carry_out
from tests.commands.advice import REPAIRS
from tests.commands.test_truth_table import other_user
from tests.commands.transcripts import rmqtool
from tests.commands.truth_table import CLEAN
from tests.conftest import Unpacked
from tests.store_state import store_state

OWNER = 12_345
DENIED = {
    "log": "commitlog",
    "one log file": "commitlog/00000000000000065536",
    "queues": "consumequeue",
    "one index file": "index/20261121181559319",
}


@pytest.mark.parametrize("denied", DENIED.values(), ids=DENIED)
def test_every_command_names_what_it_may_not_read_and_who_may(golden_copy: Unpacked, denied: str) -> None:
    """Root gives the store to one user and looks at it as another; without root the owner may not read it himself."""
    path = golden_copy(CLEAN)
    commands = [("info",), ("verify",), ("forecast",), *((command, "--dry-run") for command in REPAIRS)]
    for command in commands:  # the other user may not read Python's own modules
        rmqtool(command[0], path, *command[1:])
    if os.geteuid() == 0:
        for each in (path, *path.rglob("*")):
            os.chown(each, OWNER, OWNER)
    (path / denied).chmod(0)
    if os.geteuid() == 0:
        (path / denied).chmod(0o700 if (path / denied).is_dir() else 0o600)
    before = store_state(path) if os.geteuid() == 0 else None
    with other_user(path):
        results = {command[0]: rmqtool(command[0], path, *command[1:], "--format", "json") for command in commands}
    assert before is None or store_state(path) == before
    (path / denied).chmod(0o755)
    for command, ran in results.items():
        assert ran.code == (0 if command == "info" else 4), (command, ran)
        if command in REPAIRS:
            text = ran.err
        else:
            found = json.loads(ran.out)
            found = found.get("summary", found)
            assert (found["verdict"], found["needs_decision"]) == ("not-readable", True)
            text = found["headline"]
        assert f"{denied}: permission denied" in text
        assert f"Run as the files' owner: sudo -u {quote(user_name(path.stat().st_uid))} rmqtool {command}" in text


@pytest.mark.skipif(os.geteuid() != 0, reason="gives the store to another user")
@pytest.mark.parametrize("command", REPAIRS)
def test_a_repair_names_the_user_who_may_write_the_store(golden_copy: Unpacked, command: str) -> None:
    path = golden_copy(CLEAN)
    rmqtool(command, path, "--dry-run")  # the other user may not read Python's own modules
    for each in (path, *path.rglob("*")):
        os.chown(each, OWNER, OWNER)
        each.chmod(0o755 if each.is_dir() else 0o644)
    with other_user(path):
        ran = rmqtool(command, path, "--yes")
    assert ran.code == 4
    assert f"/lock: permission denied. Run as the files' owner: sudo -u '#{OWNER}' rmqtool {command}" in ran.err


FOREIGN = (
    ".snapshot/hourly.0/store/commitlog", "backup/2026-11-01/store/commitlog", "lost+found/a/b/c", "@eaDir/x",
    "consumequeue/lost+found/a", "consumequeue/@eaDir/a", "index/.snapshot/a", "config/old/a",
)  # fmt: skip


@pytest.mark.parametrize("is_denied", [False, True], ids=["readable", "denied"])
def test_directories_of_no_broker_are_unknown_files_and_no_more(golden_copy: Unpacked, *, is_denied: bool) -> None:
    path = golden_copy(CLEAN)
    commands = (("info",), ("verify",), ("forecast",), ("recover", "--dry-run"))
    before = {command[0]: rmqtool(command[0], path, *command[1:], "--format", "json") for command in commands}
    tops = [path / directory for directory in FOREIGN]
    for top in tops:
        top.mkdir(parents=True)
        (top / f"{0:020d}").write_bytes(bytes(100))
    (path / "notes.txt").write_text("mine")
    tops = [path / directory.split("/a")[0].split("/h")[0].split("/2")[0].split("/x")[0] for directory in FOREIGN]
    if os.geteuid() == 0:
        for each in (path, *path.rglob("*")):
            os.chown(each, OWNER, OWNER)
    if is_denied:
        for each in (*tops, path / "notes.txt"):
            each.chmod(0o700 if each.is_dir() and os.geteuid() == 0 else 0)
    with other_user(path):
        results = {command[0]: rmqtool(command[0], path, *command[1:], "--format", "json") for command in commands}
    for top in tops:
        top.chmod(0o755)
    for command, ran in results.items():
        assert ran.code == before[command].code == 0, (command, ran)
        now, then = json.loads(ran.out), json.loads(before[command].out)
        now, then = now.get("summary", now), then.get("summary", then)
        assert (now["verdict"], now["not_looked_at"]) == (then["verdict"], then["not_looked_at"])
    unknown = json.loads(results["info"].out)["unknown_files"]
    named = {f"{top.relative_to(path)}/" for top in tops}
    if not is_denied:  # what can be looked at might be a topic's
        named = {f"{name}a/" if name.startswith("consumequeue") else name for name in named}
    assert set(unknown) == {"notes.txt", *named}


def test_the_owner_of_a_patched_file_is_named_without_another_argument(
    golden: Unpacked, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(carry_out, "denied_files", lambda _: ("checkpoint: permission denied",))
    ran = rmqtool("patch", golden(CLEAN) / "commitlog" / f"{0:020d}", "--at", "0", "--set", "flag=1", "--dry-run")
    assert ran.code == 4
    assert ran.err.startswith("rmqtool: checkpoint: permission denied. Run as the files' owner: sudo -u ")
    assert ran.err.endswith(" rmqtool patch ...\n")


def user_name(user_id: int) -> str:
    try:
        return pwd.getpwuid(user_id).pw_name
    except KeyError:
        return f"#{user_id}"
