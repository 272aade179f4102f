"""Stores on a real S3 server: the same answers as of a disk, few requests, and clear errors where the network fails."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from benchmarks.logs import write_log
from rmqtool.pipeline.tables.options import SourceOptions
from rmqtool.pipeline.tables.table import parts, read_part, table_of
from rmqtool.store import remote
from rmqtool.store.ranged_source import FETCH_MAX
from tests.commands.transcripts import rmqtool
from tests.conftest import Unpacked
from tests.golden_stores import unpack
from tests.remote.s3_server import KEYS, Fault, Proxy, proxy_to, s3_server, upload

pytestmark = pytest.mark.s3
STORES = ("5.5.0-damage-base", "5.5.0-crashed", "4.9.7-damage-flip-body-middle-file")
FILE = "00000000000000131072"
LIMIT_SECONDS = 20


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[int]:
    with s3_server() as port:
        folder = tmp_path_factory.mktemp("uploaded")
        for name in STORES:
            upload(port, unpack(name, folder), name)
        write_log(folder / "large" / "commitlog", 2, 32 << 20, 1 << 10)
        upload(port, folder / "large", "large")
        yield port


@pytest.fixture
def proxy(server: int, monkeypatch: pytest.MonkeyPatch) -> Iterator[Proxy]:
    for name, value in KEYS.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(remote, "ATTEMPTS", 1)
    monkeypatch.setattr(remote, "REQUEST_TIMEOUT_S", 1.0)
    with proxy_to(server) as running:
        yield running


@pytest.mark.parametrize("name", STORES)
@pytest.mark.parametrize(
    "command",
    [
        ("verify", "--format", "json"),
        ("forecast", "--format", "json"),
        ("dump", "--format", "jsonl", "--body", "hex"),
        ("get", "--format", "json", "--topic", "TopicTest", "--queue-id", "0", "--queue-offset", "0", "--count", "9"),
    ],
    ids=lambda words: words[0],
)
def test_what_is_read_is_the_same(golden: Unpacked, proxy: Proxy, name: str, command: tuple[str, ...]) -> None:
    here = rmqtool(command[0], golden(name), *command[1:])
    there = rmqtool(command[0], proxy.url(name), *command[1:])
    assert there.code == here.code
    if command[0] in ("verify", "forecast"):
        assert without_advice(json.loads(there.out)) == without_advice(json.loads(here.out))
    else:
        assert there.out == here.out


def without_advice(result: Any) -> Any:
    """A result without the commands that repair: a store elsewhere has to be copied first."""
    if isinstance(result, list):
        return [without_advice(each) for each in result]
    if not isinstance(result, dict):
        return result
    advice = {"repair", "next_step", "needs_decision"}
    return {key: without_advice(value) for key, value in result.items() if key not in advice}


def test_info_and_diff(golden: Unpacked, proxy: Proxy) -> None:
    name = "5.5.0-damage-base"
    here, there = (
        json.loads(rmqtool("info", place, "--format", "json").out) for place in (golden(name), proxy.url(name))
    )
    assert there["commitlog"] == here["commitlog"]
    assert there["consumequeue"] == here["consumequeue"]
    assert there["store"] == f"s3://archive/{name}"
    assert rmqtool("diff", golden(name), proxy.url(name)).code == 0
    assert rmqtool("diff", proxy.url(name), proxy.url("5.5.0-crashed")).code == 3


def test_a_scan_asks_for_large_ranges(proxy: Proxy) -> None:
    ran = rmqtool("verify", proxy.url("large"), "--depth", "records", "--threads", 1, "--format", "json")
    assert json.loads(ran.out)["summary"]["checked"]["records"] > 40_000
    reads = proxy.reads()
    assert all(asked.startswith("bytes=") for _, asked in reads)
    ramp_up = 8  # ranges that double to the largest, and single looks at each file
    assert len(reads) <= (64 << 20) // FETCH_MAX + 2 * ramp_up
    listings = [path for method, path, _ in proxy.asked if "list-type" in path]
    assert len(listings) <= 6


@pytest.mark.parametrize(("options", "asked"), [({}, 2), ({"from_offset": "140000"}, 2), ({"table": "findings"}, 0)])
def test_a_plan_for_spark_asks_for_little(proxy: Proxy, options: dict[str, str], asked: int) -> None:
    """The listing, and the begin of the last file."""
    table = table_of(SourceOptions.parse({"path": proxy.url("5.5.0-damage-base"), **options}))
    planned = parts(table)
    names = [path for _, path, _ in proxy.asked if "list-type" not in path and "/commitlog/0" in path]
    assert len(names) == asked
    proxy.asked.clear()
    rows = sum(batch.num_rows for part in planned for batch in read_part(table, part))
    assert rows > (0 if options else 200) or options.get("table") == "findings"
    if not options.get("table"):
        files = [path for method, path, _ in proxy.asked if method == "GET"]
        assert max(map(files.count, files)) <= 2
        assert not any("list-type" in path for path in files)


def test_one_look_asks_for_little(proxy: Proxy) -> None:
    assert rmqtool("dump", f"{proxy.url('large')}", "--limit", 1).code == 0
    asked = [tuple(map(int, ranged.removeprefix("bytes=").split("-"))) for _, ranged in proxy.reads()]
    assert sum(end - start + 1 for start, end in asked) <= 8 << 20


def lines_of(proxy: Proxy, name: str = "5.5.0-damage-base") -> tuple[int, list[dict[str, object]], str]:
    """Exit code, findings and standard error of verify, in bounded time."""
    begun = time.monotonic()
    ran = rmqtool("verify", proxy.url(name), "--format", "jsonl")
    assert time.monotonic() - begun < LIMIT_SECONDS
    assert "Traceback" not in ran.err
    assert "internal error" not in ran.err
    return ran.code, [json.loads(line) for line in ran.out.splitlines()], ran.err


@pytest.mark.parametrize("fault", [Fault.DENIED, Fault.MISSING, Fault.BROKEN, Fault.CUT, Fault.SILENT], ids=str)
def test_a_file_that_is_not_given_is_an_unreadable_range(proxy: Proxy, fault: Fault) -> None:
    proxy.faults[f"commitlog/{FILE}"] = fault
    code, rows, _ = lines_of(proxy)
    assert code == 4
    unreadable = [row for row in rows if row.get("id") == "commitlog.unreadable-range"]
    assert [(row["file"], row["file_position"], row["length"]) for row in unreadable] == [
        (f"commitlog/{FILE}", 0, 65_536)
    ]
    summary = rows[-1]
    assert summary["checked"]["records"] > 100  # type: ignore[index]
    ran = rmqtool("dump", proxy.url("5.5.0-damage-base"), "--format", "jsonl")
    assert ran.code == 3
    assert [json.loads(line)["finding"] for line in ran.out.splitlines() if '"bad"' in line] == [
        "commitlog.unreadable-range"
    ]


@pytest.mark.parametrize("fault", [Fault.DENIED, Fault.BROKEN, Fault.SILENT], ids=str)
@pytest.mark.parametrize("command", ["info", "verify", "forecast", "dump"])
def test_a_bucket_that_cannot_be_listed_is_one_line(proxy: Proxy, command: str, fault: Fault) -> None:
    proxy.faults["archive"] = fault
    begun = time.monotonic()
    ran = rmqtool(command, proxy.url("5.5.0-crashed"))
    assert time.monotonic() - begun < LIMIT_SECONDS
    assert (ran.code, ran.out) == (4, "")
    assert ran.err.startswith("rmqtool: s3://archive/5.5.0-crashed: ")
    assert ran.err.count("\n") == 1


def test_everything_silent_after_the_listing_ends_soon(proxy: Proxy) -> None:
    for part in ("commitlog/0", "consumequeue/", "index/", "checkpoint", "config/"):
        proxy.faults[f"archive/5.5.0-damage-base/{part}"] = Fault.SILENT
    code, _, _ = lines_of(proxy)
    assert code == 4


def test_a_part_that_cannot_be_listed_is_said(proxy: Proxy) -> None:
    proxy.faults["prefix=5.5.0-damage-base/consumequeue"] = Fault.DENIED
    proxy.faults["prefix=5.5.0-damage-base%2Fconsumequeue"] = Fault.DENIED
    code, _, err = lines_of(proxy)
    assert code == 4
    assert "consumequeue" in err


def test_a_server_that_is_not_there_is_one_line(proxy: Proxy) -> None:
    url = proxy.url("x").replace(str(proxy.port), "1")
    begun = time.monotonic()
    ran = rmqtool("info", url)
    assert time.monotonic() - begun < LIMIT_SECONDS
    assert ran.code == 4
    assert ran.err.count("\n") == 1


def test_keys_in_a_url_are_never_shown(proxy: Proxy, tmp_path: Path) -> None:
    url = proxy.url("5.5.0-damage-base").replace("s3://", "s3://Name:Sesame@")
    for command in (["info"], ["verify"], ["diff", "--make-manifest", str(tmp_path / "m")], ["dump", "--verbose"]):
        ran = rmqtool(*command, url)
        assert ran.code == 0
        assert "Sesame" not in ran.out + ran.err
    assert b"Sesame" not in (tmp_path / "m").read_bytes()
    gone = rmqtool("info", url.replace("5.5.0", "gone"))
    assert gone.code == 4
    assert "Sesame" not in gone.err


@pytest.mark.parametrize(
    "url",
    [
        "s3://Name:Sesame@/x", "s3://Name:Sesame@[/x", "s3://Name:Sesame@b/x?secret=Sesame", "gs://Name:Sesame@",
        "s3://Name:a/Sesame@b/x", "s3://Name:a/b/Sesame@b/x", "hdfs://Name:Sesame@no-such:99999/x",
        "ftp://Name:Sesame@127.0.0.1:1/x", "nosuch://Name:Sesame@h/x",
    ],
)  # fmt: skip
@pytest.mark.parametrize("command", ["info", "verify", "dump", "recover"])
def test_keys_in_a_url_that_is_wrong_are_never_shown(url: str, command: str) -> None:
    ran = rmqtool(command, url)
    assert ran.code in (2, 4), ran
    assert "Sesame" not in ran.out + ran.err
    assert ran.err.count("\n") == 1
