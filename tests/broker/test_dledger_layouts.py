"""DLedger behind a plain log, in several directories, and with files that are gone: what brokers serve, and we say."""

from __future__ import annotations

import os
import shutil
import socket
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from tests.broker.broker import Judge, OpenStore
from tests.broker.conftest import JudgeOf
from tests.broker.files import copy_store
from tests.broker.program import JudgeError
from tests.commands.transcripts import json_answer, rmqtool
from tests.conftest import Unpacked
from tests.odd_stores import unpack_odd

pytestmark = pytest.mark.broker

SIZES = {"mappedFileSizeCommitLog": 65536, "mappedFileSizeConsumeQueue": 600, "maxHashSlotNum": 100, "maxIndexNum": 200}
VERSION = "5.4.0"
COUNT = 150
ELECTION_S = 30
Served = dict[tuple[str, int, int], int]


def group(**settings: object) -> dict[str, object]:
    """Settings of a group with one member, at a port of its own."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    member = settings.get("dLegerSelfId", "n0")
    own = {"enableDLegerCommitLog": "true", "dLegerGroup": "g", "dLegerSelfId": member}
    return {**SIZES, **own, "dLegerPeers": f"{member}-127.0.0.1:{port}", **settings}


def put(store: OpenStore, begin: int) -> None:
    """Messages from a number on."""
    sent: list[dict[str, Any]] = [
        {"topic": "T", "queueId": number % 2, "body": b"x" * 800, "properties": {"KEYS": f"k{number}"}}
        for number in range(begin, begin + COUNT)
    ]
    put_all(store, sent)


def put_all(store: OpenStore, sent: list[dict[str, Any]]) -> None:
    """Messages for a group of one; its member takes none before it has elected itself."""
    deadline = time.monotonic() + ELECTION_S
    while store.put(sent[0])[0]["status"] != "PUT_OK":
        assert time.monotonic() < deadline
        time.sleep(0.3)
    assert {answer["status"] for answer in store.put(*sent[1:])} == {"PUT_OK"}
    store.wait_dispatched()


def put_to_leader(members: list[OpenStore], count: int) -> None:
    """Messages for whichever member the others elect; it continues at the queues' ends, as a whole broker does."""
    deadline = time.monotonic() + ELECTION_S
    sent = {"topic": "T", "queueId": 0, "body": b"x" * 500, "properties": {"KEYS": "k"}}
    while not (leaders := [member for member in members if member.put(sent)[0]["status"] == "PUT_OK"]):
        assert time.monotonic() < deadline
        time.sleep(0.3)
    leaders[0].wait_dispatched()
    leaders[0].lead()
    assert {answer["status"] for answer in leaders[0].put(*[sent] * (count - 1))} == {"PUT_OK"}
    time.sleep(1.5)  # until the others know that it is committed


def served(judge: Judge, store: Path, config: dict[str, object]) -> Served | None:
    """Physical offset of each message that a broker serves of a copy; None where it does not start."""
    copy = copy_store(store, store.parent / f"{store.name}-started")
    try:
        report = judge.examine(copy, config)
    except JudgeError:
        return None
    finally:
        shutil.rmtree(copy)
    if "served" not in report:
        return None
    return {
        (queue["topic"], queue["queueId"], row[0]): row[2]
        for queue in report["served"]["queues"]
        for row in queue["messages"]
        if row[1] == "FOUND"
    }


@pytest.fixture(scope="module")
def mixed(judge_of: JudgeOf, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store whose broker had a plain log first, and then DLedger turned on."""
    path, judge = tmp_path_factory.mktemp("mixed") / "store", judge_of(VERSION)
    for number, config in enumerate((SIZES, group())):
        with judge.open(path, config) as store:
            put(store, number * COUNT)
    return path


def test_both_logs_are_served_and_become_one_plain_log(mixed: Path, judge_of: JudgeOf, tmp_path: Path) -> None:
    judge, plain = judge_of(VERSION), tmp_path / "plain"
    before = served(judge, mixed, group())
    assert before is not None
    assert len(before) == 2 * COUNT
    code, verified = json_answer("verify", copy_store(mixed, tmp_path / "checked"))
    assert (code, verified["summary"]["checked"]["records"]) == (0, 2 * COUNT)
    off = served(judge, mixed, SIZES)
    assert off is not None
    assert len(off) == COUNT
    ran = rmqtool("convert", tmp_path / "checked", "--from-dledger", "--output", plain, "--yes")
    assert ran.code == 0, ran.err
    after = served(judge, plain, SIZES)
    assert after is not None
    assert after.keys() == before.keys()


def test_data_in_several_directories_is_read_where_they_are_named(
    mixed: Path, judge_of: JudgeOf, tmp_path: Path
) -> None:
    judge, store = judge_of(VERSION), copy_store(mixed, tmp_path / "store")
    data = store / "dledger-n0" / "data"
    for number, file in enumerate(sorted(data.iterdir())):
        (store / f"d{number % 2}").mkdir(exist_ok=True)
        file.rename(store / f"d{number % 2}" / file.name)
    data.rmdir()
    named = group(storePathDLedgerCommitLog="d0,d1")
    conf = tmp_path / "broker.conf"
    paths = f"{store}/d0,{store}/d1"
    conf.write_text("\n".join(f"{key}={value}" for key, value in {**named, "storePathDLedgerCommitLog": paths}.items()))
    answers = served(judge, store, named), served(judge, store, group())
    assert [len(answer or ()) for answer in answers] == [2 * COUNT, COUNT]
    code, verified = json_answer("verify", store, "--broker-conf", conf)
    assert (code, verified["summary"]["checked"]["records"]) == (0, 2 * COUNT)
    code, verified = json_answer("verify", store)
    assert (code, verified["summary"]["verdict"]) == (3, "damaged")
    assert rmqtool("recover", store, "--yes", "--accept-loss").code == 4
    shutil.rmtree(store / "consumequeue")
    ran = rmqtool("rebuild", store, "--yes", "--broker-conf", conf)
    assert ran.code == 0, ran.err
    assert len(served(judge, store, named) or ()) == 2 * COUNT


def files_of(store: Path, kind: str) -> list[Path]:
    return sorted((store / "dledger-n0" / kind).iterdir())


SHAPES: dict[str, tuple[Callable[[Path], object], str]] = {
    "last data file cut": (lambda store: os.truncate(files_of(store, "data")[-1], 65000), "will-not-start"),
    "last data file empty": (lambda store: os.truncate(files_of(store, "data")[-1], 0), "will-not-start"),
    "data file between others gone": (lambda store: files_of(store, "data")[1].unlink(), "will-not-start"),
    "index cut": (lambda store: os.truncate(files_of(store, "index")[0], 160_000), "will-not-start"),
    "plain file cut": (lambda store: os.truncate(max((store / "commitlog").iterdir()), 1), "will-not-start"),
    "another file": (lambda store: (store / "dledger-n0/data/notes.txt").write_text("x"), "will-not-start"),
    "first data file gone": (lambda store: files_of(store, "data")[0].unlink(), "damaged"),
    "last data file gone": (lambda store: files_of(store, "data")[-1].unlink(), "damaged"),
    "last plain file gone": (lambda store: max((store / "commitlog").iterdir()).unlink(), "damaged"),
    "index gone": (lambda store: shutil.rmtree(store / "dledger-n0/index"), "inconsistent"),
}
"""What is done to the files, and the verdict; a broker does not start, has fewer messages, or makes the index again."""


@pytest.mark.parametrize("version", [VERSION, pytest.param("4.9.7", marks=pytest.mark.slow)])
@pytest.mark.parametrize("shape", SHAPES)
def test_a_verdict_on_files_is_what_a_broker_does(
    mixed: Path, judge_of: JudgeOf, tmp_path: Path, shape: str, version: str
) -> None:
    change, verdict = SHAPES[shape]
    store = copy_store(mixed, tmp_path / "store")
    change(store)
    assert json_answer("verify", store)[1]["summary"]["verdict"] == verdict
    answer = served(judge_of(version), store, group())
    assert (answer is None) == (verdict == "will-not-start")
    assert len(set((answer or {}).values())) < 2 * COUNT or verdict == "inconsistent"


def test_a_start_without_data_deletes_the_queues_as_forecast(judge_of: JudgeOf, tmp_path: Path) -> None:
    store = unpack_odd("dledger-data-missing", tmp_path)
    forecast = json_answer("forecast", store, "--broker-version", "5.3.3")[1]["forecasts"][0]
    sizes = {**SIZES, "mappedFileSizeCommitLog": 262144, "mappedFileSizeConsumeQueue": 20000}
    report = judge_of("5.3.3").examine(store, {**group(), **sizes})
    queues = {path for path in report["files"]["removed"] if path.startswith("consumequeue/")}
    assert (set(forecast["deleted_files"]), len(queues)) == (queues, 12)


@pytest.mark.parametrize("committed", [-1, 495, 499])
@pytest.mark.parametrize("version", ["5.3.3", "4.9.7"])
def test_what_a_start_drops_after_a_kill_is_told(
    golden_copy: Unpacked, judge_of: JudgeOf, tmp_path: Path, version: str, committed: int
) -> None:
    store = golden_copy(f"broker-{version}-dledger")
    (store / "dledger-n0" / "checkpoint").write_text(f"committedIndex={committed}\nendIndex={committed}\n")
    found = json_answer("verify", store, "--broker-version", version)[1]["findings"]
    counts = [finding["count"] for finding in found if finding["id"] == "dledger.dropped-at-start"]
    sizes = {"mappedFileSizeCommitLog": 262144, "mappedFileSizeConsumeQueue": 20000}
    answer = served(judge_of(version), copy_store(store, tmp_path / "store"), {**group(), **sizes})
    assert 500 - len(answer or ()) == sum(counts)
    assert sum(counts) == (max(0, committed - 492) if version == "5.3.3" else 0)


def test_a_last_record_without_properties_is_served_once_its_queue_is_rebuilt(
    judge_of: JudgeOf, tmp_path: Path
) -> None:
    store = unpack_odd("dledger-empty-properties", tmp_path)
    config = {**group(), "mappedFileSizeCommitLog": 102400, "mappedFileSizeConsumeQueue": 1040}
    assert served(judge_of(VERSION), store, config) == {}
    ran = rmqtool("rebuild", store, "--queues", "--queue-file-size", 1040, "--yes")
    assert len(served(judge_of(VERSION), store, config) or ()) == 10, ran.err


@pytest.mark.slow
@pytest.mark.parametrize("version", ["4.9.7", VERSION])
def test_members_of_a_group_after_elections_and_a_kill(judge_of: JudgeOf, tmp_path: Path, version: str) -> None:
    judge, count = judge_of(version), 40
    with ExitStack() as stack:
        free = [stack.enter_context(socket.create_server(("127.0.0.1", 0))) for _ in range(3)]
        ports = [server.getsockname()[1] for server in free]
    peers = ";".join(f"n{number}-127.0.0.1:{port}" for number, port in enumerate(ports))
    for present in ((0, 1, 2), (0, 1), (1, 2), (0, 2)):
        members = [
            judge.open(tmp_path / f"n{number}", group(dLegerSelfId=f"n{number}", dLegerPeers=peers))
            for number in present
        ]
        put_to_leader(members, count)
        if present == (0, 2):
            members[0].halt()
        else:
            for member in members:
                member.shutdown()
    for number, expected in enumerate((4 * count, 3 * count, 4 * count)):  # n1 was away in the end
        store, plain = tmp_path / f"n{number}", tmp_path / f"plain{number}"
        found = json_answer("verify", store, "--broker-version", version)[1]
        dropped = sum(one["count"] for one in found["findings"] if one["id"] == "dledger.dropped-at-start")
        assert {one["id"] for one in found["findings"]} <= {
            "store.abort-present", "index.would-be-dropped", "dledger.dropped-at-start", "checkpoint.zero-time",
        }  # fmt: skip
        assert found["summary"]["checked"]["records"] == expected
        ran = rmqtool("convert", store, "--from-dledger", "--output", plain, "--yes")
        assert (ran.code, "the last entry is" in ran.out) == (0, True), ran.err
        assert len(set((served(judge, plain, SIZES) or {}).values())) == expected
        assert len(served(judge, store, group(dLegerSelfId=f"n{number}")) or ()) == expected - dropped
