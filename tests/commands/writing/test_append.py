"""`append` at the command line: what it writes, what it reports, and everything that it refuses."""

from __future__ import annotations

import json
import os
import resource
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from rmqtool.errors import WriteError
from rmqtool.fixtures.recipe import End, Recipe, Run, make_store
from rmqtool.fixtures.samples import Samples
from rmqtool.store.sink import DirectorySink
from tests.broker.files import snapshot
from tests.commands.transcripts import Ran, rmqtool

ROOT = Path(__file__).resolve().parents[3]
SMALL = ("--set", "mappedFileSizeCommitLog=65536", "--set", "mappedFileSizeConsumeQueue=600")
SMALL += ("--set", "maxHashSlotNum=100", "--set", "maxIndexNum=200")


def append(store: Path, *options: object) -> list[dict[str, Any]]:
    ran = rmqtool("append", store, *options, "--format", "jsonl")
    assert ran.code == 0, ran.err
    return rows(ran)


def rows(ran: Ran) -> list[dict[str, Any]]:
    return [json.loads(line) for line in ran.out.splitlines()]


def create(store: Path, *options: object) -> list[dict[str, Any]]:
    return append(store, "--create", *SMALL, "--topic", "orders", *options)


def process(*arguments: object, given: bytes = b"", before: Callable[[], None] | None = None) -> Ran:
    command = [sys.executable, "-m", "rmqtool", *map(str, arguments)]
    ran = subprocess.run(
        command, cwd=ROOT, input=given, capture_output=True, check=False, timeout=120, preexec_fn=before
    )
    return Ran(ran.returncode, ran.stdout.decode(), ran.stderr.decode())


def test_messages_get_places_offsets_and_ids(tmp_path: Path) -> None:
    written = create(tmp_path / "s", "--queue-id", 2, "--body", "hello", "--keys", "a b", "--count", 3)
    assert [row["queue_offset"] for row in written] == [0, 1, 2]
    assert [row["status"] for row in written] == ["PUT_OK"] * 3
    assert [row["physical_offset"] for row in written] == [0, written[0]["size"], 2 * written[0]["size"]]
    found = rmqtool("get", tmp_path / "s", "--topic", "orders", "--key", "b", "--format", "json")
    assert len(json.loads(found.out)["messages"]) == 3
    by_id = rmqtool("get", tmp_path / "s", "--message-id", written[1]["message_id"], "--format", "json")
    assert json.loads(by_id.out)["messages"][0]["queue_offset"] == 1
    assert rmqtool("verify", tmp_path / "s").code == 0


def test_a_store_is_gone_on_with(tmp_path: Path) -> None:
    first = create(tmp_path / "s", "--body", "one")
    [second] = append(tmp_path / "s", "--topic", "orders", "--body", "two")
    assert (second["physical_offset"], second["queue_offset"]) == (first[0]["size"], 1)
    assert rmqtool("verify", tmp_path / "s").code == 0


def test_the_next_file_goes_where_the_configuration_says(tmp_path: Path) -> None:
    """A path that holds no file yet is a path too: a broker takes them in turn, in the order of their names."""
    store = tmp_path / "store"
    paths = (*SMALL, "--set", "storePathCommitLog=commitlog,log-b,log-c")
    create(store, *paths, "--topic", "t", "--body", "x" * 60_000)
    append(store, *paths, "--topic", "t", "--body", "x" * 60_000)
    files = [str(file.relative_to(store)) for file in sorted(store.glob("*log*/*"))]
    assert files == ["commitlog/00000000000000000000", "log-b/00000000000000065536"]


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        (("--delay-level", 3), {"topic": "SCHEDULE_TOPIC_XXXX", "queue_id": 2}),
        (("--transaction", "commit"), {"transaction": "commit"}),
        (("--property", "colour=red"), {"topic": "orders"}),
        (("--born-host", "[2001:db8::1]:77"), {"born_host": "[2001:db8::1]:77"}),
        (("--store-host", "10.0.0.9:10911"), {"store_host": "10.0.0.9:10911"}),
        (("--tags", "paid"), {"tags": "paid"}),
    ],
)
def test_options_are_in_the_record(tmp_path: Path, options: tuple[object, ...], expected: dict[str, Any]) -> None:
    create(tmp_path / "s", "--body", "x", *options)
    [row] = rows(rmqtool("dump", tmp_path / "s", "--format", "jsonl"))
    assert {name: row[name] for name in expected} == expected
    if "--property" in options:
        assert row["properties"]["colour"] == "red"


def test_a_batch_is_one_row_and_several_records(tmp_path: Path) -> None:
    [row] = create(tmp_path / "s", "--body", "x", "--batch", "--count", 4)
    assert len(row["message_id"].split(",")) == 4
    assert len(rows(rmqtool("dump", tmp_path / "s", "--format", "jsonl"))) == 4


def test_a_body_comes_from_a_file(tmp_path: Path) -> None:
    (tmp_path / "body").write_bytes(bytes(range(256)))
    create(tmp_path / "s", "--body-file", tmp_path / "body")
    [row] = rows(rmqtool("dump", tmp_path / "s", "--format", "jsonl", "--body", "hex"))
    assert row["body"] == bytes(range(256)).hex()


def test_a_crash_leaves_abort_and_the_next_file(tmp_path: Path) -> None:
    create(tmp_path / "s", "--body", "x", "--end", "crash")
    assert (tmp_path / "s/abort").exists()
    assert len(list((tmp_path / "s/commitlog").iterdir())) == 2
    before = snapshot(tmp_path / "s")
    ran = rmqtool("append", tmp_path / "s", "--topic", "orders", "--body", "y")
    assert ran.code == 5
    assert "the last stop was not clean" in ran.err
    assert snapshot(tmp_path / "s") == before
    [row] = append(tmp_path / "s", "--topic", "orders", "--body", "y", "--after-crash")
    assert row["queue_offset"] == 1
    assert (tmp_path / "s/abort").exists()


def test_standard_input_is_read(tmp_path: Path) -> None:
    given = b'{"topic": "orders", "body": "caf\\u00e9"}\n\n{"type": "blank"}\n{"topic": "orders", "queue_id": 1}\n'
    ran = process("append", tmp_path / "s", "--create", *SMALL, "--from", "-", "--format", "jsonl", given=given)
    assert ran.code == 0, ran.err
    assert [row["status"] for row in rows(ran)] == ["PUT_OK", "PUT_OK"]


def test_batch_topics_are_told_or_known(tmp_path: Path) -> None:
    row = {"topic": "packed", "body": "", "properties": {"INNER_NUM": "2"}, "sys_flag": 0xC0}
    (tmp_path / "rows").write_text(json.dumps(row) + "\n")
    refused = rmqtool("append", tmp_path / "no", "--create", *SMALL, "--from", tmp_path / "rows", "--format", "jsonl")
    assert refused.code == 3
    assert rows(refused)[0]["status"] == "MESSAGE_ILLEGAL"
    told = append(tmp_path / "s", "--create", *SMALL, "--batch-topic", "packed", "--from", tmp_path / "rows")
    known = append(tmp_path / "s", "--from", tmp_path / "rows", "--broker-version", "5.5.0")
    assert [told[0]["queue_offset"], known[0]["queue_offset"]] == [0, 2]
    assert list((tmp_path / "s/batchconsumequeue/packed/0").iterdir())


BAD_LINES = {
    "not JSON": "{",
    "not JSON (maximum recursion depth exceeded": '{"topic": "t", "body": ' + "[" * 100_000 + "]" * 100_000 + "}",
    "expected `object`, got `array`": "[1]",
    "no topic": "{}",
    "topic: expected `str | null`, got `int`": '{"topic": 1}',
    "a row of type 'unit' is not a message": '{"type": "unit", "topic": "t"}',
    "the body is not in the row": '{"topic": "t", "body_length": 3}',
    "the body was truncated": '{"topic": "t", "body": "x", "body_truncated": true}',
    "the body is not text": '{"topic": "t", "body": {"a": 1}}',
    "the body is not base64": '{"topic": "t", "body": "%", "body_encoding": "base64"}',
    "the body is not hex": '{"topic": "t", "body": "xy", "body_encoding": "hex"}',
    "bodies shown as 'json' cannot be appended": '{"topic": "t", "body": {}, "body_encoding": "json"}',
    "queue_id: expected `int` <= 2147483647": '{"topic": "t", "queue_id": 99999999999}',
    "store_timestamp_ms: expected `int": '{"topic": "t", "store_timestamp_ms": 9223372036854775808}',
    "physical_offset: expected `int` >= 0": '{"topic": "t", "physical_offset": -1}',
    "flag: expected `int`, got `bool`": '{"topic": "t", "flag": true}',
    "properties[...]: expected `str`, got `int`": '{"topic": "t", "properties": {"a": 1}}',
    "born_host is": '{"topic": "t", "born_host": "nowhere"}',
    "transaction is": '{"topic": "t", "transaction": "perhaps"}',
}


@pytest.mark.parametrize("reason", BAD_LINES)
def test_a_bad_line_is_named(tmp_path: Path, reason: str) -> None:
    (tmp_path / "rows").write_text('{"topic": "good"}\n' + BAD_LINES[reason] + "\n")
    ran = rmqtool("append", tmp_path / "s", "--create", *SMALL, "--from", tmp_path / "rows")
    assert ran.code == 2
    assert reason in ran.err
    assert "line 2" in ran.err
    assert "Traceback" not in ran.err


@pytest.mark.parametrize(
    ("line", "body"),
    [
        (rb'{"topic": "orders", "body": "caf\u00e9 \ud83d\ude00"}', "café \U0001f600".encode()),
        (rb'{"topic": "orders", "body": "half \ud83d"}', b"half \xed\xa0\xbd"),
        (b'{"topic": "orders", "body": "not UTF-8: \xff"}', "not UTF-8: \ufffd".encode()),
        (b'{"topic": "orders", "body": null}', b""),
        (b'{"topic": "orders", "body": "AP8=", "body_encoding": "base64", "other": [1], "finding": null}', b"\x00\xff"),
        (b'{"topic": "orders", "body": "\\u0041P8=", "body_encoding": "base64"}\r', b"\x00\xff"),
        (b'{"topic": "orders", "body": "00FF", "body_encoding": "hex"}', b"\x00\xff"),
    ],
)
def test_a_body_arrives_as_its_line_says(tmp_path: Path, line: bytes, body: bytes) -> None:
    (tmp_path / "rows").write_bytes(line + b"\n")
    append(tmp_path / "s", "--create", *SMALL, "--from", tmp_path / "rows")
    [row] = rows(rmqtool("dump", tmp_path / "s", "--format", "jsonl", "--body", "hex"))
    assert bytes.fromhex(row["body"]) == body


def test_a_huge_line_is_refused_before_it_is_read_whole(tmp_path: Path) -> None:
    with (tmp_path / "rows").open("wb") as file:
        file.truncate(200 << 20)
    ran = process(
        "append", tmp_path / "s", "--create", *SMALL, "--from", tmp_path / "rows",
        before=lambda: resource.setrlimit(resource.RLIMIT_AS, (3 << 30, 3 << 30)),
    )  # fmt: skip
    assert ran.code == 2
    assert "line 1: longer than" in ran.err


@pytest.mark.parametrize(
    ("options", "code", "reason"),
    [
        ((), 2, "use either --topic"),
        (("--topic", "t", "--from", "-"), 2, "use either --topic"),
        (("--topic", "t", "--body", "x", "--body-file", "y"), 2, "either --body or --body-file"),
        (("--topic", "t", "--body-file", "/nowhere/body"), 4, "/nowhere/body"),
        (("--topic", "t", "--property", "novalue"), 2, "is not NAME=VALUE"),
        (("--topic", "t", "--born-host", "nowhere"), 2, "--born-host"),
        (("--topic", "t", "--set", "novalue"), 2, "is not NAME=VALUE"),
        (("--topic", "t", "--set", "mappedFileSizeCommitLog=no"), 2, "is not a number"),
        (("--topic", "t", "--set", "mappedFileSizeCommitLog=0"), 2, "leaves no room"),
        (("--topic", "t", "--set", "storetype=x"), 2, "did you mean storeType?"),
        (("--topic", "t", "--set", "enableControllerMode=true"), 4, "enableControllerMode=true"),
        (("--topic", "t", "--set", "storeType=defaultRocksDB"), 4, "RocksDB"),
        (("--topic", "t", "--broker-version", "3.2.6"), 2, "older than"),
        (("--from", "/nowhere/rows.jsonl"), 4, "/nowhere/rows.jsonl"),
    ],
)
def test_wrong_wishes_are_told(tmp_path: Path, options: tuple[str, ...], code: int, reason: str) -> None:
    ran = rmqtool("append", tmp_path / "s", "--create", *options)
    assert (ran.code, reason in ran.err) == (code, True), ran.err


def test_what_is_no_store_is_not_written(tmp_path: Path) -> None:
    (tmp_path / "letter.txt").write_text("dear")
    for options, code in (((), 4), (("--create",), 5)):
        ran = rmqtool("append", tmp_path, *options, "--topic", "t", "--body", "x")
        assert ran.code == code
    assert [path.name for path in tmp_path.iterdir()] == ["letter.txt"]


def test_a_store_in_use_is_refused(tmp_path: Path) -> None:
    create(tmp_path / "s", "--body", "x")
    before = snapshot(tmp_path / "s")
    code = (
        "import fcntl, sys; f = open(sys.argv[1], 'r+b'); fcntl.lockf(f, fcntl.LOCK_EX, 1); print(flush=True); input()"
    )
    command = [sys.executable, "-c", code, str(tmp_path / "s/lock")]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as broker:
        assert broker.stdout is not None
        broker.stdout.readline()
        ran = process("append", tmp_path / "s", "--topic", "orders", "--body", "y")
        broker.communicate(b"\n", timeout=30)
    assert ran.code == 5
    assert "holds the lock" in ran.err
    assert snapshot(tmp_path / "s") == before


def test_a_full_disk_is_an_error_and_leaves_a_crashed_store(tmp_path: Path) -> None:
    """The limit on file sizes stands for a disk that takes no more; what was reported before is in the log."""
    create(tmp_path / "s", "--body", "x")
    limit = 2000  # the 65 kB of the log are made already, the queue file of another queue is not
    given = b"".join(b'{"topic": "orders", "body": "%s"}\n' % (b"y" * 400) for _ in range(20))
    ran = process(
        "append", tmp_path / "s", "--from", "-", "--format", "jsonl", given=given,
        before=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit)),
    )  # fmt: skip
    assert ran.code == 4, ran.err
    assert "Traceback" not in ran.err
    assert (tmp_path / "s/abort").exists()
    assert f"rmqtool recover {tmp_path}/s completes it" in ran.err
    assert rmqtool("recover", tmp_path / "s", "--yes").code == 0
    reported = {json.loads(line)["physical_offset"] for line in ran.out.splitlines()}
    dumped = map(json.loads, rmqtool("dump", tmp_path / "s", "--format", "jsonl").out.splitlines())
    assert reported <= {row["physical_offset"] for row in dumped}
    assert rmqtool("verify", tmp_path / "s").code == 0


@pytest.mark.parametrize("options", [(), ("--after-crash",)])
def test_a_write_that_fails_leaves_the_store_as_it_was_or_a_crashed_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, options: tuple[str, ...]
) -> None:
    """Every call that changes the store fails once, and all after it do too."""
    create(tmp_path / "s", "--body", "x" * 300, "--keys", "k", "--count", 3)
    (tmp_path / "s/checkpoint").unlink()
    if options:  # records that no queue has are dispatched first
        for file in (tmp_path / "s/consumequeue/orders/0").iterdir():
            file.unlink()
    before = snapshot(tmp_path / "s")
    calls = ["create", "write_at"]
    real = {name: getattr(DirectorySink, name) for name in calls}
    for allowed in count():
        shutil.copytree(tmp_path / "s", tmp_path / str(allowed))
        left = iter(range(allowed))

        def failing(name: str, left: Iterator[int] = left) -> Callable[..., None]:
            def call(sink: DirectorySink, *arguments: object) -> None:
                if next(left, None) is None:
                    raise WriteError("no space left on device")
                real[name](sink, *arguments)

            return call

        for name in calls:
            monkeypatch.setattr(DirectorySink, name, failing(name))
        ran = rmqtool("append", tmp_path / str(allowed), "--topic", "orders", "--body", "y", *options)
        if ran.code == 0:
            break
        assert ran.code == 4, ran.err
        after = snapshot(tmp_path / str(allowed))
        assert after == before or "abort" in after, allowed
    assert allowed > 5


def test_the_log_and_a_queue_go_on_in_files_with_longer_names(tmp_path: Path) -> None:
    """A broker takes a name for a number, and goes on in the file that has it."""
    create(tmp_path / "s", "--body", "x", "--keys", "a")
    for directory in ("commitlog", "consumequeue/orders/0"):
        (tmp_path / "s" / directory / f"{0:020d}").rename(tmp_path / "s" / directory / f"{0:022d}")
    [row] = append(tmp_path / "s", "--topic", "orders", "--body", "y", "--keys", "b")
    assert (row["status"], row["queue_offset"]) == ("PUT_OK", 1)
    for directory in ("commitlog", "consumequeue/orders/0"):
        assert [file.name for file in (tmp_path / "s" / directory).iterdir()] == [f"{0:022d}"]
    found = rmqtool("get", tmp_path / "s", "--topic", "orders", "--key", "b", "--format", "json")
    assert [message["queue_offset"] for message in json.loads(found.out)["messages"]] == [1]


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_a_directory_that_may_not_be_written_is_told(tmp_path: Path) -> None:
    tmp_path.chmod(0o500)
    try:
        ran = rmqtool("append", tmp_path / "s", "--create", "--topic", "t", "--body", "x")
    finally:
        tmp_path.chmod(0o700)
    assert (ran.code, "Traceback" in ran.err) == (4, False)


def test_a_file_in_the_place_of_the_store_is_told(tmp_path: Path) -> None:
    (tmp_path / "s").write_text("a file")
    ran = rmqtool("append", tmp_path / "s", "--create", "--topic", "t", "--body", "x")
    assert (ran.code, "Traceback" in ran.err) == (4, False)


def test_a_topic_that_leads_out_of_the_store_is_refused(tmp_path: Path) -> None:
    ran = rmqtool("append", tmp_path / "deep/s", "--create", *SMALL, "--topic", "../../../out", "--body", "x")
    assert ran.code == 3
    assert "messages refused: 1" in ran.err
    assert not list(tmp_path.rglob("out"))
    assert not (tmp_path / "out").exists()


def test_a_closed_pipe_is_no_error(tmp_path: Path) -> None:
    command = f"{sys.executable} -m rmqtool append {tmp_path}/s --create {' '.join(SMALL)} --topic t --count 3000"
    ran = subprocess.run(
        ["/bin/bash", "-o", "pipefail", "-c", f"{command} --format jsonl | head -1"],
        cwd=ROOT, capture_output=True, text=True, check=False, timeout=120,
    )  # fmt: skip
    assert (ran.returncode, ran.stderr) == (0, "")
    assert rmqtool("dump", tmp_path / "s", "--topic", "t", "--format", "jsonl").out.count("\n") == 3000


def test_a_log_may_end_in_records_that_no_queue_takes(tmp_path: Path) -> None:
    create(tmp_path / "s", "--body", "x")
    append(tmp_path / "s", "--topic", "orders", "--transaction", "prepared", "--count", 2)
    [row] = append(tmp_path / "s", "--topic", "orders", "--body", "y")
    assert row["queue_offset"] == 1
    assert rmqtool("verify", tmp_path / "s").code == 0


@pytest.mark.parametrize("version", ["4.9.7", "5.5.0"])
def test_what_was_not_dispatched_is_dispatched_first(tmp_path: Path, version: str) -> None:
    """Several files of it: queue offsets go on behind what the crash left in the log only."""

    def runs(samples: Samples) -> list[Run]:
        topics = ("orders", "payments")
        return [
            Run(samples.messages(200, topics, 2)),
            Run(samples.messages(500, (*topics, "late"), 2), End.KILLED_BEFORE_DISPATCH),
        ]

    make_store(Recipe(name="undispatched", about="several files", runs=runs), tmp_path / "s", version)
    broker = ("--broker-version", version)
    written = [
        append(tmp_path / "s", "--topic", topic, "--queue-id", 1, "--body", "y", "--after-crash", *broker)[0]
        for topic in ("orders", "late", "new")
    ]
    found = rows(rmqtool("dump", tmp_path / "s", "--format", "jsonl"))
    for row, topic in zip(written, ("orders", "late", "new"), strict=True):
        own = [
            message["queue_offset"]
            for message in found
            if (message.get("topic"), message.get("queue_id")) == (topic, 1)
        ]
        assert own == list(range(len(own)))
        assert own[-1] == row["queue_offset"]
    verified = rows(rmqtool("verify", tmp_path / "s", *broker, "--format", "jsonl"))
    warnings = {row["id"] for row in verified if row["type"] == "finding" and row["severity"] != "note"}
    assert warnings == {"store.abort-present"}
