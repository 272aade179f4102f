"""A bundle with hidden names has no name of a topic or group and no address, and gives the store's verdict."""

from __future__ import annotations

import json
import socket
from pathlib import Path

import pytest

from rmqtool.evidence.names import BundleNames
from rmqtool.formats.java_text import java_hash
from tests.commands.transcripts import rmqtool
from tests.conftest import Unpacked
from tests.evidence.leak_scan import contents

NAMES = {
    "5.5.0-damage-zero-hole-abort": (b"OrderEvents", b"TopicTest", b"Audit"),
    "broker-5.5.0-pop": (b"tickets",),
    "broker-5.5.0-timer": (b"alarms",),
}


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("options", [(), ("--max-size", "1")])
def test_no_name_and_no_address_is_in_the_bundle(
    golden: Unpacked, tmp_path: Path, name: str, options: tuple[str, ...]
) -> None:
    store, bundle, log = golden(name), tmp_path / "bundle", tmp_path / "broker.log"
    rows = [json.loads(line) for line in rmqtool("dump", store, "--format", "jsonl").out.splitlines()]
    hosts = {row["store_host"].rpartition(":")[0] for row in rows if row["type"] == "message"}
    topics = {path.name.encode() for path in (store / "consumequeue").iterdir()}
    names = [text for text in NAMES[name] if text in topics]
    assert names
    assert hosts
    log.write_text(f"2026-01-01 from {min(hosts)} to {names[0].decode()}\n")
    ran = rmqtool("evidence", store, "--output", bundle, "--hide-names", "--broker-log", log, *options)
    assert ran.code == 0, ran.err
    content = b"\n".join(contents(bundle))
    assert [text for text in (*names, str(store).encode()) if text in content] == []
    assert [host for host in hosts if host.encode() in content] == []
    assert [host for host in hosts if socket.inet_aton(host) + b"\0\0" in content] == []
    for command in ("verify", "forecast"):
        own, other = (rmqtool(command, place, "--format", "json") for place in (store, bundle))
        assert own.code == other.code
        own_end, other_end = (json.loads(ran.out).get("summary", json.loads(ran.out)) for ran in (own, other))
        assert own_end["verdict"] == other_end["verdict"]


@pytest.mark.parametrize("name", ["broker-5.5.0-batchcq", "broker-5.5.0-mixed-killed"])
def test_names_of_brokers_go_from_topics_and_logs_and_fields_of_configuration_stay(
    golden: Unpacked, tmp_path: Path, name: str
) -> None:
    store, bundle, log, conf = golden(name), tmp_path / "bundle", tmp_path / "broker.log", tmp_path / "broker.conf"
    topics = b"".join(path.read_bytes() for path in store.glob("config/topics.json*"))
    assert b"rmq_sys_SYNC_BROKER_MEMBER_broker-a" in topics
    log.write_text("2026-01-01 pay-broker-07 of payments-of-europe joined\n")
    conf.write_text("brokerName=pay-broker-07\nbrokerClusterName=payments-of-europe\n")
    ran = rmqtool(
        "evidence", store, "--output", bundle, "--hide-names", "--broker-log", log, "--broker-conf", conf
    )  # fmt: skip
    assert ran.code == 0, ran.err
    content = b"\n".join(contents(bundle))
    assert [one for one in (b"broker-a", b"pay-broker-07", b"payments-of-europe") if one in content] == []
    for field in (b'"topicName"', b'"topicFilterType"', b'"queue.type"'):
        assert content.count(field) == topics.count(field)


def test_a_name_is_replaced_by_one_and_prefixes_and_own_names_stay() -> None:
    names = BundleNames(b"secret")
    shown = names.name(b"payments-of-europe")
    assert shown != b"payments-of-europe"
    assert java_hash(shown.decode()) == java_hash("payments-of-europe")
    assert names.name(b"%RETRY%payments-of-europe") == b"%RETRY%" + shown
    assert names.text("at payments-of-europe/0") == f"at {shown.decode()}/0"
    assert names.path("consumequeue/payments-of-europe/1/0") == f"consumequeue/{shown.decode()}/1/0"
    for own in (b"TBW102", b"SCHEDULE_TOPIC_XXXX", b"RMQ_SYS_TRANS_HALF_TOPIC", b"17"):
        assert names.name(own) == own


def test_short_names_stay_apart() -> None:
    names = BundleNames(b"secret")
    letters = [bytes([one, two]) for one in b"abcdefgh" for two in b"ABCDEFGH"]
    assert len({names.name(text) for text in letters}) == len(letters)


def test_bodies_and_hidden_names_contradict_each_other(golden: Unpacked, tmp_path: Path) -> None:
    ran = rmqtool("evidence", golden("5.5.0-clean-basic"), "--output", tmp_path / "b", "--hide-names", "--with-bodies")
    assert ran.code == 2
    assert not (tmp_path / "b").exists()


def test_no_two_names_of_one_character_are_shown_as_the_same() -> None:
    """There are hardly more names of that length than a store may have."""
    names = BundleNames(b"secret")
    own = [bytes([byte]) for byte in b"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ_-"]
    shown = [names.name(name) for name in own]
    assert len(set(shown)) == len(own)
    assert sum(one == other for one, other in zip(own, shown, strict=True)) <= 1


@pytest.mark.parametrize("name", ["订单事件", "😀😀😀", "ñandú-🚀"])
def test_a_name_that_is_no_ascii_keeps_its_length_and_hash(name: str) -> None:
    shown = BundleNames(b"secret").name(name.encode())
    assert shown.isalpha()
    assert len(shown) == len(name.encode())
    assert java_hash(shown.decode()) == java_hash(name)
