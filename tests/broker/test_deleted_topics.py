"""Deleted topics before real brokers: what they serve stays served, and nothing of what was deleted comes back."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests import life_stores
from tests.broker.broker import Judge, OpenStore, served_places
from tests.broker.files import copy_store
from tests.broker.versions import ROUTINE, VERSIONS
from tests.commands.transcripts import rmqtool
from tests.conftest import Unpacked

JudgeOf = Callable[[str], Judge]
CONFIG = {
    "mappedFileSizeCommitLog": 65_536, "mappedFileSizeConsumeQueue": 1_000, "maxHashSlotNum": 100, "maxIndexNum": 400,
    "mapedFileSizeCommitLog": 65_536, "mapedFileSizeConsumeQueue": 1_000,
}  # fmt: skip
SIZES = ("--log-file-size", 65_536, "--queue-file-size", 1_000, "--index-slots", 100, "--index-entries", 400)
ROCKSDB = "5.5.0"
COMMANDS = (("recover",), ("recover", "--full"), ("rebuild",), ("salvage",))
LIVES = [name for name in life_stores.names() if name.startswith("deleted-topic")]
OF_A_CRASH = {"store.abort-present", "consumequeue.behind-log", "commitlog.queue-offset-repeated"}
"""Queues in RocksDB lack what was not flushed: new messages, and that older ones were deleted."""
EACH = [
    pytest.param(v.name, False, id=v.name, marks=() if v.name in ROUTINE else pytest.mark.slow) for v in VERSIONS
] + [pytest.param(ROCKSDB, True, id=f"{ROCKSDB}-rocksdb")]


def write_topics(path: Path, *names: str) -> None:
    """A whole topics.json, as a broker writes it."""
    (path / "config").mkdir(exist_ok=True)
    table = {name: {"topicName": name, "readQueueNums": 4, "writeQueueNums": 4} for name in ("SELF_TEST_TOPIC", *names)}
    (path / "config/topics.json").write_text(json.dumps({"topicConfigTable": table}))


def put(store: OpenStore, topic: str, queue_id: int, count: int) -> None:
    properties = {"KEYS": f"{topic}-{queue_id}", "UNIQ_KEY": f"{topic}{queue_id}"}
    answers = store.put(
        *({"topic": topic, "queueId": queue_id, "body": b"x" * 90, "properties": properties} for _ in range(count))
    )
    assert [answer["status"] for answer in answers] == ["PUT_OK"] * count
    store.wait_dispatched()


def lived(judge: Judge, folder: Path, config: dict[str, Any], *, again: int, ends_badly: bool) -> Path:
    """A store whose topic T was deleted, and used again by as many messages in its queue 0."""
    path = folder / "written"
    store = judge.open(path, config)
    put(store, "T", 0, 8)
    put(store, "T", 1, 3)
    put(store, "K", 0, 3)
    store.delete_topic("T", ["K"])
    if again:
        put(store, "T", 0, again)
    put(store, "K", 0, 2)
    write_topics(path, *(("K", "T") if again else ("K",)))
    if ends_badly:
        store.halt()
    else:
        store.shutdown()
    write_topics(path, *(("K", "T") if again else ("K",)))
    return copy_store(path, folder / "store")


def served(judge: Judge, path: Path, config: dict[str, Any], folder: Path) -> dict[tuple[str, int, int], int]:
    """What a real start serves of a copy; of a topic without an entry nobody gets anything."""
    shutil.rmtree(folder, ignore_errors=True)
    with judge.open(copy_store(path, folder), config) as store:
        assert store.serving, store.opened
        places = served_places(store.read())
    topics = json.loads((path / "config/topics.json").read_text())["topicConfigTable"]
    return {place: physical_offset for place, physical_offset in places.items() if place[0] in topics}


def findings(path: Path, *options: object) -> dict[str, list[dict[str, Any]]]:
    """By severity."""
    rows = json.loads(rmqtool("verify", path, *options, "--format", "json").out)["findings"]
    return {name: [row for row in rows if row["severity"] == name] for name in ("error", "warning", "note")}


@pytest.mark.parametrize("ends_badly", [False, True], ids=["clean", "killed"])
@pytest.mark.parametrize("again", [0, 3], ids=["deleted", "used again"])
@pytest.mark.parametrize(("version", "in_database"), EACH)
def test_what_is_served_stays_served(
    judge_of: JudgeOf, tmp_path: Path, version: str, *, in_database: bool, again: int, ends_badly: bool
) -> None:
    judge = judge_of(version)
    config: dict[str, Any] = {**CONFIG, **({"storeType": "defaultRocksDB"} if in_database else {})}
    path = lived(judge, tmp_path, config, again=again, ends_badly=ends_badly)
    before = served(judge, path, config, tmp_path / "asked")
    assert sum(topic == "K" for topic, _, _ in before) == 5
    options = ("--broker-version", version, *SIZES)
    found = findings(path, *options)
    assert [row["id"] for row in found["error"]] == []
    assert {row["id"] for row in found["warning"]} <= (OF_A_CRASH if ends_badly else set())
    if ends_badly and again:
        # A start after a crash enters what was deleted again, where the queue has nothing of the new messages.
        before = {place: at for place, at in before.items() if place[:2] != ("T", 1)}
    # In RocksDB such a start gives a place by chance to either generation; what consumers get there is no floor.
    by_chance = {place for place in before if in_database and ends_badly and again and place[0] == "T"}
    floor = {place: at for place, at in before.items() if place not in by_chance}
    for command in COMMANDS:
        shutil.rmtree(tmp_path / "repaired", ignore_errors=True)
        repaired = copy_store(path, tmp_path / "repaired")
        ran = rmqtool(*command, repaired, "--yes", *options)
        assert ran.code in (0, 3), (command, ran)
        after = served(judge, repaired, config, tmp_path / "asked")
        assert {place: after.get(place) for place in floor} == floor, command
        assert after.keys() == before.keys(), command


@pytest.mark.parametrize(("version", "in_database"), EACH)
def test_lost_queues_of_a_topic_used_again_have_its_new_messages(
    judge_of: JudgeOf, tmp_path: Path, version: str, *, in_database: bool
) -> None:
    judge = judge_of(version)
    config: dict[str, Any] = {**CONFIG, **({"storeType": "defaultRocksDB"} if in_database else {})}
    path = lived(judge, tmp_path, config, again=3, ends_badly=False)
    before = served(judge, path, config, tmp_path / "asked")
    assert sorted(place for place in before if place[0] == "T") == [("T", 0, 0), ("T", 0, 1), ("T", 0, 2)]
    if in_database:
        shutil.rmtree(path / "consumequeue")
        (path / "consumequeue").mkdir()
    else:
        shutil.rmtree(path / "consumequeue/T")
    queues = ("--broker-conf", conf_of(tmp_path, config)) if in_database else ()
    ran = rmqtool("rebuild", path, "--yes", "--broker-version", version, *queues, *(() if in_database else SIZES))
    assert ran.code == 0, ran
    assert served(judge, path, config, tmp_path / "asked") == before


def test_lost_batch_queues_of_a_topic_used_again_have_its_new_messages(judge_of: JudgeOf, tmp_path: Path) -> None:
    version = "5.5.0"
    judge, path = judge_of(version), tmp_path / "written"
    config = {**CONFIG, "mapperFileSizeBatchConsumeQueue": 46 * 10}
    attributes = {"T": {"writeQueueNums": 1, "attributes": {"queue.type": "BatchCQ"}}}
    store = judge.open(path, config, attributes)
    put_batches(store, 6)
    store.delete_topic("T", [])
    put_batches(store, 3)
    store.shutdown()
    write_topics(path, "T")
    file = path / "config/topics.json"
    content = json.loads(file.read_text())
    content["topicConfigTable"]["T"]["attributes"] = {"+queue.type": "BatchCQ", "queue.type": "BatchCQ"}
    file.write_text(json.dumps(content))
    path = copy_store(path, tmp_path / "store")
    units = (path / f"batchconsumequeue/T/0/{0:020d}").read_bytes()
    options = ("--broker-version", version, *SIZES)
    assert findings(path, *options)["warning"] == []
    for is_lost in (False, True):
        if is_lost:
            shutil.rmtree(path / "batchconsumequeue/T")
        conf = tmp_path / "broker.conf"
        conf.write_text("".join(f"{name}={value}\n" for name, value in config.items() if not name.startswith("maped")))
        ran = rmqtool("rebuild", path, "--queues", "--yes", "--broker-version", version, "--broker-conf", conf)
        assert ran.code == 0, ran
        assert (path / f"batchconsumequeue/T/0/{0:020d}").read_bytes() == units


def put_batches(store: OpenStore, count: int) -> None:
    inner = [{"body": b"y" * 40} for _ in range(2)]
    answers = store.put(*({"topic": "T", "queueId": 0, "innerBatch": inner} for _ in range(count)))
    assert [answer["status"] for answer in answers] == ["PUT_OK"] * count, answers
    store.wait_dispatched()


def conf_of(folder: Path, config: dict[str, Any]) -> Path:
    file = folder / "broker.conf"
    file.write_text("".join(f"{name}={value}\n" for name, value in config.items() if not name.startswith("maped")))
    return file


@pytest.mark.parametrize("version", [pytest.param(v, marks=() if v == "5.5.0" else pytest.mark.slow) for v in ROUTINE])
def test_a_topic_that_is_wanted_back_is_served(judge_of: JudgeOf, tmp_path: Path, version: str) -> None:
    judge = judge_of(version)
    path = lived(judge, tmp_path, CONFIG, again=0, ends_badly=False)
    ran = rmqtool("rebuild", path, "--topic", "T", "--yes", "--broker-version", version, *SIZES)
    assert ran.code == 0, ran
    after = served(judge, path, CONFIG, tmp_path / "asked")
    assert {place[1:] for place in after if place[0] == "T"} == {(0, n) for n in range(8)} | {(1, n) for n in range(3)}


@pytest.mark.parametrize("command", [pytest.param("recover"), pytest.param("rebuild", marks=pytest.mark.slow)])
@pytest.mark.parametrize("name", LIVES)
def test_the_stores_of_whole_brokers(
    judge_of: JudgeOf, golden_copy: Unpacked, tmp_path: Path, name: str, command: str
) -> None:
    path, life = golden_copy(name), life_stores.life_store(name)
    assert rmqtool(command, path, "--yes", "--broker-version", life.asked).code in (0, 3)
    with judge_of(life.asked).open(copy_store(path, tmp_path / "asked"), dict(life.config)) as store:
        assert served_places(store.read()).items() >= life.served.items()
