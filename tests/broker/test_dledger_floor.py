"""What members of DLedger groups serve is kept by `rebuild` and `convert`, and counted as real brokers have it."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from tests.broker.broker import Judge, served_places
from tests.broker.conftest import JudgeOf
from tests.broker.files import copy_store
from tests.broker.test_deleted_topics import write_topics
from tests.broker.test_dledger_layouts import SIZES, group, put_all, served
from tests.commands.transcripts import rmqtool

pytestmark = pytest.mark.broker
VERSIONS = ("4.9.7", "5.3.3", "5.4.0")
SHOWN = ("--queue-file-size", 600, "--index-slots", 100, "--index-entries", 200)
DROPPED = {"4.9.7": 0, "5.3.3": 3, "5.4.0": 3}
"""What a start after a kill drops of 150 messages, by the headers of entries that it does not count."""
Place = tuple[str, int, int]


def messages(topic: str, queue_id: int, count: int, text: bytes = b"x") -> list[dict[str, Any]]:
    return [
        {"topic": topic, "queueId": queue_id, "body": text * 800, "properties": {"KEYS": f"{topic}{number}"}}
        for number in range(count)
    ]


def plan_of(*arguments: object) -> dict[str, Any]:
    plan: dict[str, Any] = json.loads(rmqtool(*arguments, "--dry-run", "--format", "json").out)
    return plan


def records(store: Path, places: dict[Place, int]) -> dict[Place, bytes]:
    """The records that are served at these places, without their physical offsets."""
    files = {
        int(file.name): file.read_bytes() for file in (*store.glob("commitlog/*"), *store.glob("dledger-*/data/*"))
    }
    size = SIZES["mappedFileSizeCommitLog"]
    served_records = {}
    for place, at in places.items():
        content, position = files[at // size * size], at % size
        record = content[position : position + int.from_bytes(content[position : position + 4], "big")]
        served_records[place] = record[:28] + record[36:]
    return served_records


@pytest.mark.parametrize("queues", ["there", "gone", "behind"])
@pytest.mark.parametrize("ends", ["clean", "killed"])
@pytest.mark.parametrize("version", VERSIONS)
def test_plans_count_what_a_member_serves(
    judge_of: JudgeOf, tmp_path: Path, version: str, ends: str, queues: str
) -> None:
    judge, path, output = judge_of(version), tmp_path / "store", tmp_path / "plain"
    with judge.open(tmp_path / "written", group()) as store:
        put_all(store, messages("T", 0, 75) + messages("T", 1, 75))
        killed = copy_store(tmp_path / "written", tmp_path / "killed")
    copy_store(killed if ends == "killed" else tmp_path / "written", path)
    if queues == "gone":
        shutil.rmtree(path / "consumequeue")
    elif queues == "behind":
        shutil.rmtree(path / "consumequeue/T/1")
    before = served(judge, path, group())
    assert before is not None
    for command in (("rebuild", path), ("convert", path, "--from-dledger", "--output", output)):
        plan = plan_of(*command, *SHOWN, "--broker-version", version)
        floor = plan["floor"]
        if not plan["steps"]:
            assert len(before) == 150
            continue
        dropped = DROPPED[version] if ends == "killed" and queues != "gone" else 0
        assert floor["kept"] in (len(before), len(before) + dropped)
        assert (floor["kept"] + floor["added"], floor["taken_away"], floor["moved"]) == (150, 0, 0)
    assert rmqtool("convert", path, "--from-dledger", "--output", output, "--yes", *SHOWN).code == 0
    plain = served(judge, output, SIZES)
    assert plain is not None
    assert len(plain) == 150
    assert rmqtool("rebuild", path, "--yes", *SHOWN).code == 0
    after = served(judge, path, group())
    assert after is not None
    assert (len(after), before.items() <= after.items()) == (150, True)


def lived(judge: Judge, folder: Path, *, again: bool, ends: str) -> Path:
    """A group whose topic T was deleted, and used again."""
    path = folder / "written"
    store = judge.open(path, group())
    put_all(store, messages("T", 0, 30, b"o") + messages("T", 1, 5, b"o") + messages("K", 0, 9))
    store.delete_topic("T", ["K"])
    put_all(store, (messages("T", 0, 12, b"n") if again else []) + messages("K", 0, 3))
    write_topics(path, "K", *(["T"] if again else []))
    if ends == "killed":
        return copy_store(path, folder / "killed")
    store.shutdown()
    write_topics(path, "K", *(["T"] if again else []))
    return path


@pytest.mark.parametrize("again", [True, False], ids=["used-again", "deleted"])
@pytest.mark.parametrize("ends", ["clean", "killed"])
@pytest.mark.parametrize("version", VERSIONS)
def test_a_deleted_topic_of_a_group_stays_deleted(
    judge_of: JudgeOf, tmp_path: Path, version: str, ends: str, *, again: bool
) -> None:
    judge, output = judge_of(version), tmp_path / "plain"
    path = copy_store(lived(judge, tmp_path, again=again, ends=ends), tmp_path / "store")
    # A start after a kill also enters messages that were deleted, into queues that are no more: nobody got those.
    before = {place: at for place, at in configured(judge, path, group()).items() if has_queue(path, place)}
    ran = rmqtool("convert", path, "--from-dledger", "--output", output, "--yes", "--broker-version", version)
    assert ran.code == 0, ran.err
    after = configured(judge, output, SIZES)
    assert {topic for topic, *_ in after} == ({"K", "T"} if again else {"K"})
    assert records(path, before).items() <= records(output, after).items()
    assert rmqtool("rebuild", path, "--yes", "--broker-version", version).code == 0
    assert before.items() <= configured(judge, path, group()).items()


def has_queue(path: Path, place: Place) -> bool:
    return (path / f"consumequeue/{place[0]}/{place[1]}").is_dir()


def configured(judge: Judge, path: Path, config: dict[str, object]) -> dict[Place, int]:
    """What a member serves of topics that are configured; of others nobody gets anything."""
    topics = json.loads((path / "config/topics.json").read_text())["topicConfigTable"]
    with judge.open(copy_store(path, path.parent / f"{path.name}-started"), config) as store:
        assert store.serving, store.opened
        places = served_places(store.read())
    shutil.rmtree(path.parent / f"{path.name}-started")
    return {place: at for place, at in places.items() if place[0] in topics}
