"""A mirror of a real master has its log byte for byte, brokers serve it, and the master does not count on it."""

from __future__ import annotations

import json
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.broker.mirror_run import FILE_SIZE, TOPICS, MirroredBroker, rmqtool
from tests.broker.toolchain import require_tools
from tests.broker.whole import WholeBroker
from tests.replication.mirror_runs import record_starts

VERSIONS = ["4.9.7", "5.5.0"]


def mirror(*arguments: str, code: int = 0) -> dict[str, Any]:
    ran = rmqtool(*arguments)
    out, errors = ran.communicate(timeout=120)
    assert ran.returncode == code, (out, errors)
    shown: dict[str, Any] = json.loads(out) if out else {}
    return shown | {"errors": errors}


@contextmanager
def running(pair: MirroredBroker) -> Iterator[WholeBroker]:
    require_tools()
    pair.start()
    assert pair.broker is not None
    with pair.broker as broker:
        yield broker


def demand_same_log(pair: MirroredBroker, end: int) -> None:
    pair.figures["end_offset"] = end
    assert pair.differences() == []


@pytest.mark.parametrize("version", VERSIONS)
def test_a_broker_serves_the_copy_of_a_real_master(tmp_path: Path, version: str) -> None:
    pair = MirroredBroker(version, tmp_path)
    with running(pair) as broker:
        for number in range(300):
            broker.send("Load", number % 4, b"%06d" % number * 650, {"KEYS": f"k{number}"})
        result = mirror(*pair.options("--until", "now", "--config-from", str(pair.master)))
    assert result["copied_records"] >= 300
    assert "topics.json" in result["config_files"]
    demand_same_log(pair, result["end_offset"])
    assert result["end_offset"] > FILE_SIZE
    ran = rmqtool("verify", str(pair.copy))
    out, errors = ran.communicate()
    assert ran.returncode == 0, (out, errors)
    with WholeBroker(version, pair.copy, pair.config, TOPICS) as broker:
        assert broker.started["lastExit"] == "clean"
        assert sum(len(queue["messages"]) for queue in broker.consume("Load")) == 300
        assert [message["body"] for message in broker.query("Load", "k7")] == [b"000007" * 650]


@pytest.mark.parametrize("version", VERSIONS)
def test_until_now_ends_on_a_busy_master_with_a_record_of_the_future(tmp_path: Path, version: str) -> None:
    """A master that gets messages all the time sends no heartbeat, and one of its records has a wrong store time."""
    pair = MirroredBroker(version, tmp_path)
    with running(pair) as broker:
        for number in range(100):
            broker.send("Load", number % 4, b"%06d" % number * 200)
        log = pair.master / "commitlog" / f"{0:020}"
        starts = record_starts(log.read_bytes()[:FILE_SIZE])
        ahead_ms = int(time.time() * 1000) + 86_400_000
        with log.open("r+b") as file:
            file.seek(starts[50] + 56)
            file.write(ahead_ms.to_bytes(8, "big"))
        began_ms = int(time.time() * 1000)
        ran, sent = rmqtool(*pair.options("--until", "now")), 0
        while ran.poll() is None:
            broker.send("Load", sent % 4, b"later")
            sent += 1
            assert time.time() * 1000 - began_ms < 60_000, "does not end"
        out, errors = ran.communicate()
    assert ran.returncode == 0, (out, errors)
    result = json.loads(out)
    assert 100 < result["copied_records"] <= 100 + sent
    assert result["late_records"] == {"physical_offset": starts[50], "store_timestamp_ms": ahead_ms, "records": 1}
    assert "store times out of order: 1 record" in errors
    assert result["last_store_timestamp_ms"] >= began_ms
    demand_same_log(pair, result["end_offset"])


@pytest.mark.slow
@pytest.mark.parametrize("version", VERSIONS)
def test_a_log_whose_first_files_were_deleted_is_copied_from_its_first_byte(tmp_path: Path, version: str) -> None:
    pair = MirroredBroker(version, tmp_path, {"mappedFileSizeCommitLog": 65536})
    with running(pair) as broker:
        for number in range(100):
            broker.send("Load", number % 4, b"x" * 4000)
    files = sorted((pair.master / "commitlog").iterdir())
    assert len(files) > 4
    for path in files[:3]:
        path.unlink()
    with running(pair):
        place = ["mirror", f"127.0.0.1:{pair.ha_port}", str(pair.copy), "--until", "now", "--format", "jsonl"]
        result = mirror(*place, "--log-file-size", "65536")
    assert result["start_offset"] == 3 * 65536
    for path in files[3:]:
        if int(path.name) < result["end_offset"]:
            length = result["end_offset"] - int(path.name)
            assert (pair.copy / "commitlog" / path.name).read_bytes()[:length] == path.read_bytes()[:length]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("version", "config", "alone", "mirrored"),
    [
        ("4.9.7", {}, "SLAVE_NOT_AVAILABLE", "FLUSH_SLAVE_TIMEOUT"),
        ("5.5.0", {}, "SEND_OK", "SEND_OK"),
        ("5.5.0", {"inSyncReplicas": 2}, None, None),
    ],
)
def test_a_synchronous_master_counts_on_a_mirror_for_nothing(
    tmp_path: Path, version: str, config: dict[str, Any], alone: str | None, mirrored: str | None
) -> None:
    pair = MirroredBroker(version, tmp_path, {"brokerRole": "SYNC_MASTER", **config})

    def status(broker: WholeBroker) -> str:
        try:
            return str(broker.send("Load", 0, b"x")["status"])
        except Exception as error:  # noqa: BLE001 - what the client says of an answer that is no success
            return str(error)

    with running(pair) as broker:
        before = status(broker)
        pair.start_mirror()
        caught_up(pair)
        beside = status(broker)
        assert pair.mirror is not None
        pair.mirror.terminate()
        pair.mirror.communicate()
        assert pair.mirror.returncode == 0
        pair.mirror = rmqtool(*pair.options("--quiet", "--as-slave"))
        caught_up(pair)
        acknowledged = status(broker)
        pair.mirror.terminate()
        pair.mirror.communicate()
    if alone is not None:
        assert (before, beside) == (alone, mirrored)
    else:
        assert "SEND_OK" not in (before, beside), (before, beside)
    assert acknowledged == "SEND_OK"


def caught_up(pair: MirroredBroker) -> None:
    """Wait until the mirror has a connection and all that there is."""
    deadline = time.monotonic() + 60
    size = -1
    while time.monotonic() < deadline:
        path = pair.copy / "commitlog" / f"{0:020}"
        now = path.stat().st_mtime_ns if path.exists() else -1
        if now == size and connected(pair):
            return
        size = now
        time.sleep(1)
    raise AssertionError("the mirror did not connect")


def connected(pair: MirroredBroker) -> bool:
    """Whether somebody has a connection to the replication port."""
    port = f":{pair.ha_port:04X} "
    lines = Path("/proc/net/tcp").read_text().splitlines() + Path("/proc/net/tcp6").read_text().splitlines()
    return any(port in line and line.split()[3] == "01" for line in lines)


@pytest.mark.slow
@pytest.mark.parametrize("version", VERSIONS)
def test_a_mirror_and_its_master_are_killed_again_and_again(tmp_path: Path, version: str) -> None:
    require_tools()
    pair = MirroredBroker(version, tmp_path)
    pair.run(60)
    pair.finish()
    assert pair.differences() == []


def test_nothing_that_listens_but_sends_nothing_is_taken_for_a_master(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = f"127.0.0.1:{server.getsockname()[1]}"
        result = mirror("mirror", address, str(tmp_path / "copy"), "--until", "1s", "--format", "jsonl")
    assert result["copied_records"] == 0
