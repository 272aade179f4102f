"""Headlines are true: each store that was called better than it is, or worse, and what every command says of it now."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests import golden_stores
from tests.commands.transcripts import rmqtool
from tests.conftest import Unpacked
from tests.store_state import assert_store_unchanged

CLEAN = "5.5.0-clean-basic"
QUEUE = ("--topic", "OrderEvents", "--queue-id", "0", "--queue-offset", "0")
OTHER_USER = 65534


def answer(command: str, path: Path, *options: object) -> tuple[int, dict[str, Any]]:
    """Exit code and JSON of a command that only looks."""
    with assert_store_unchanged(path):
        ran = rmqtool(command, path, *options, "--format", "json")
    assert "internal error" not in ran.err
    assert ran.out, ran.err
    return ran.code, json.loads(ran.out)


@contextmanager
def other_user(path: Path) -> Iterator[None]:
    """Run as a user who may enter the directories above the store, but owns nothing."""
    for directory in path.parents:
        if directory.stat().st_uid == os.geteuid() and directory != Path("/"):
            directory.chmod(directory.stat().st_mode | 0o111)
    is_root = os.geteuid() == 0
    if is_root:
        os.seteuid(OTHER_USER)
    try:
        yield
    finally:
        if is_root:
            os.seteuid(0)


@pytest.mark.parametrize("emptied", [False, True], ids=["missing", "empty"])
def test_get_does_not_fail_where_the_log_is_missing(golden_copy: Unpacked, emptied: bool) -> None:
    path = golden_copy(CLEAN)
    shutil.rmtree(path / "commitlog")
    if emptied:
        (path / "commitlog").mkdir()
    ran = rmqtool("get", path, *QUEUE)
    assert ran.code == 6
    assert "LOG MISSING" in ran.err


def test_get_does_not_call_absent_what_it_may_not_read(golden_copy: Unpacked) -> None:
    path = golden_copy(CLEAN)
    record = golden_stores.manifest(CLEAN).records[0]
    (path / "commitlog").chmod(0)
    with other_user(path):
        ran = rmqtool("get", path, "--message-id", record.msg_id)
    (path / "commitlog").chmod(0o755)
    assert ran.code == 4
    assert "permission denied" in ran.err


@pytest.mark.parametrize("form", ["{}", "0x{}", '"{}"', "msgId={}, offsetMsgId=null", "SendResult [msgId={}, x]"])
def test_get_takes_the_id_that_clients_print(golden: Unpacked, form: str) -> None:
    record = next(each for each in golden_stores.manifest(CLEAN).records if "UNIQ_KEY" in each.properties)
    unique_key = record.properties["UNIQ_KEY"]
    for message_id in (unique_key, unique_key.lower(), record.msg_id, record.msg_id.lower()):
        code, found = answer("get", golden(CLEAN), "--message-id", form.format(message_id))
        assert code == 0
        assert [row["physical_offset"] for row in found["messages"]] == [record.at]


def test_get_says_what_it_could_not_look_into(golden: Unpacked) -> None:
    code, found = answer("get", golden("5.5.0-rocksdb-cq"), "--topic", "TopicTest", "--key", "no such key")
    assert code == 4
    assert [files["kind"] for files in found["not_looked_at"]] == ["RocksDB consume queue"]


def test_get_names_the_topics_that_are_near(golden: Unpacked) -> None:
    for options in (("--queue-id", 0, "--queue-offset", 0), ("--key", "x")):
        ran = rmqtool("get", golden(CLEAN), "--topic", "OrderEvent", *options)
        assert ran.code == 6
        assert "did you mean OrderEvents?" in ran.err
