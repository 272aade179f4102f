"""The judge judged: what is written comes back, crashes are crashes, and damage is noticed."""

import zlib
from pathlib import Path
from typing import Any

import pytest

from tests.broker.broker import Judge, served_places
from tests.broker.files import changes, copy_store, snapshot
from tests.broker.program import JudgeError

SMALL = {
    "mappedFileSizeCommitLog": 65536,
    "mappedFileSizeConsumeQueue": 600,
    "maxHashSlotNum": 100,
    "maxIndexNum": 200,
}


def fifty_messages() -> list[dict[str, Any]]:
    return [
        {
            "topic": f"Topic{number % 2}",
            "queueId": number % 3,
            "body": bytes([number]) * (number * 60),
            "flag": number,
            "bornTimestamp": 1_700_000_000_000 + number,
            "properties": {"KEYS": f"key{number} shared", "TAGS": f"Tag{number % 4}", "UNIQ_KEY": f"U{number}"},
        }
        for number in range(50)
    ]


def test_what_is_put_is_served_again(judge: Judge, tmp_path: Path) -> None:
    with judge.open(tmp_path, SMALL) as store:
        answers = store.put(*fifty_messages())
        assert store.wait_dispatched()["dispatched"]
        read = store.read()
    assert [answer["status"] for answer in answers] == ["PUT_OK"] * 50
    expected = {(a["topic"], a["queueId"], a["queueOffset"]): a["physicalOffset"] for a in answers}
    assert served_places(read) == expected
    log = [row for row in read["commitLog"] if len(row) == 2]
    assert log == [[answer["physicalOffset"], answer["size"]] for answer in answers]
    assert [row[2] for row in read["commitLog"] if len(row) == 3] == ["blank"]
    found = {(topic, key): places for topic, key, places, *kind in read["keys"] if not kind}
    for number, answer in enumerate(answers):
        assert found[answer["topic"], f"key{number}"] == [answer["physicalOffset"]]
    assert len(found["Topic0", "shared"]) == 25


def test_clean_stop_and_start_change_nothing(judge: Judge, tmp_path: Path) -> None:
    with judge.open(tmp_path, SMALL) as store:
        store.put(*fifty_messages())
        store.wait_dispatched()
        first = store.read()
    again = judge.examine(tmp_path, SMALL)
    assert again["lastExit"] == "clean"
    assert not [path for path in again["files"]["removed"] if not path.startswith("rocksdbstore")]
    assert served_places(again["served"]) == served_places(first)
    assert again["served"]["keys"] == first["keys"]
    assert again["served"]["commitLog"] == first["commitLog"]


def test_crash_after_dispatch_keeps_every_message(judge: Judge, tmp_path: Path) -> None:
    store = judge.open(tmp_path, SMALL)
    answers = store.put(*fifty_messages())
    store.wait_dispatched()
    store.halt()
    assert (tmp_path / "abort").exists()
    report = judge.examine(tmp_path, SMALL)
    assert report["lastExit"] == "abnormal"
    assert len(served_places(report["served"])) == len(answers)
    assert not (tmp_path / "abort").exists()


def test_crash_before_dispatch_leaves_no_queue_behind(judge: Judge, tmp_path: Path) -> None:
    store = judge.open(tmp_path, SMALL)
    store.stop_dispatch()
    answers = store.put(*fifty_messages())
    store.halt()
    assert not list((tmp_path / "consumequeue").glob("Topic*/*/0*"))
    report = judge.examine(tmp_path, SMALL)
    assert len(served_places(report["served"])) == len(answers)


def test_damaged_body_ends_the_log_of_a_crashed_store(judge: Judge, tmp_path: Path) -> None:
    store = judge.open(tmp_path / "healthy", SMALL)
    answers = store.put(*fifty_messages())
    store.wait_dispatched()
    store.halt()
    copy_store(tmp_path / "healthy", tmp_path / "damaged")
    place = answers[30]["physicalOffset"]
    log = tmp_path / "damaged/commitlog/00000000000000000000"
    with log.open("r+b") as file:
        file.seek(place + 200)
        byte = file.read(1)
        file.seek(place + 200)
        file.write(bytes([byte[0] ^ 1]))
    damaged = judge.examine(tmp_path / "damaged", SMALL)
    assert damaged["served"]["offsets"]["max"] == place
    healthy = judge.examine(tmp_path / "healthy", SMALL)
    assert healthy["served"]["offsets"]["max"] == answers[-1]["physicalOffset"] + answers[-1]["size"]
    assert set(served_places(damaged["served"])) == {(a["topic"], a["queueId"], a["queueOffset"]) for a in answers[:30]}


def test_store_that_does_not_load_says_so(judge: Judge, tmp_path: Path) -> None:
    with judge.open(tmp_path, SMALL) as store:
        store.put(*fifty_messages())
        store.wait_dispatched()
    queue = next((tmp_path / "consumequeue/Topic0/0").iterdir())
    with queue.open("r+b") as file:
        file.truncate(77)
    report = judge.examine(tmp_path, SMALL)
    assert report["load"] is False
    assert "served" not in report


def test_refused_puts_carry_the_broker_s_status(judge: Judge, tmp_path: Path) -> None:
    with judge.open(tmp_path, SMALL) as store:
        [too_long] = store.put({"topic": "T" * 300, "body": b"x"})
        [too_large] = store.put({"topic": "T", "body": bytes(5 << 20)})
        [fine] = store.put({"topic": "T", "body": b"x"})
    assert too_long["status"] == "MESSAGE_ILLEGAL"
    assert too_large["status"] == "MESSAGE_ILLEGAL"
    assert (fine["status"], fine["physicalOffset"]) == ("PUT_OK", 0)


def test_classic_batch_is_one_record_for_each_part(judge: Judge, tmp_path: Path) -> None:
    parts = [{"body": bytes(10 * number), "flag": number, "properties": {"KEYS": f"p{number}"}} for number in range(4)]
    with judge.open(tmp_path, SMALL) as store:
        [answer] = store.put({"topic": "B", "queueId": 1, "batch": parts})
        store.wait_dispatched()
        read = store.read()
    assert answer["status"] == "PUT_OK"
    assert sorted(served_places(read)) == [("B", 1, number) for number in range(4)]
    assert len(read["commitLog"]) == 4


def test_delayed_message_waits_in_the_schedule_topic(judge: Judge, tmp_path: Path) -> None:
    config = SMALL | {"messageDelayLevel": "1h 2h"}
    with judge.open(tmp_path, config) as store:
        [answer] = store.put({"topic": "D", "queueId": 3, "body": b"later", "properties": {"DELAY": "2"}})
        store.wait_dispatched()
        read = store.read()
    assert (answer["topic"], answer["queueId"]) == ("SCHEDULE_TOPIC_XXXX", 1)
    assert served_places(read) == {("SCHEDULE_TOPIC_XXXX", 1, 0): 0}
    [record] = read["records"]
    assert record[5] == answer["storeTimestamp"] + 2 * 3600 * 1000


def test_inner_batch_is_one_record_with_many_offsets(judge_of: Any, tmp_path: Path) -> None:
    topics = {"Inner": {"attributes": {"queue.type": "BatchCQ"}}}
    parts = [{"body": b"x" * number} for number in range(1, 6)]
    message = {"topic": "Inner", "innerBatch": parts, "properties": {"UNIQ_KEY": "inner"}}
    with judge_of("5.5.0").open(tmp_path, SMALL, topics) as store:
        [first, second] = store.put(message, message)
        [refused] = store.put(message | {"topic": "Plain"})
        store.wait_dispatched()
        rows = store.get("Inner", 0, [0, 5, 9])["rows"]
    assert (first["queueOffset"], second["queueOffset"]) == (0, 5)
    assert refused["status"] == "MESSAGE_ILLEGAL"
    assert [row[2:] for row in rows] == [
        [10, 10, [0, second["physicalOffset"]]],
        [10, 5, [second["physicalOffset"]]],
        [10, 5, [second["physicalOffset"]]],
    ]


def test_arbitrary_reads(judge: Judge, tmp_path: Path) -> None:
    with judge.open(tmp_path, SMALL) as store:
        answers = store.put(*[message | {"topic": "One", "queueId": 0} for message in fifty_messages()])
        store.wait_dispatched()
        tagged = store.get("One", 0, [0, 49, 50, 51], count=5, tags="Tag1 || Tag3")["rows"]
        queried = store.query("One", "shared", count=7)
        by_time = store.offsets_by_time("One", 0, [answers[0]["storeTimestamp"], answers[-1]["storeTimestamp"] + 5000])
    places = [answer["physicalOffset"] for answer in answers]
    assert tagged[0][4] == places[1:11:2]
    assert [row[1] for row in tagged] == ["FOUND", "FOUND", "OFFSET_OVERFLOW_ONE", "OFFSET_OVERFLOW_BADLY"]
    assert queried["served"] == places[-7:]
    # Messages put within one millisecond have one time, and a broker may find any of them.
    assert answers[by_time[0]["offset"]]["storeTimestamp"] == answers[0]["storeTimestamp"]
    assert by_time[1]["offset"] >= 49


def test_several_stores_at_once_and_ipv6(judge: Judge, tmp_path: Path) -> None:
    with judge.open(tmp_path / "a", SMALL) as a, judge.open(tmp_path / "b", SMALL) as b:
        [four] = a.put({"topic": "T", "body": b"x"})
        [six] = b.put({"topic": "T", "body": b"x", "storeHost": "[::1]:10911", "bornHost": "[2001:db8::1]:5"})
    assert six["size"] == four["size"] + 24
    assert len(six["messageId"]) == 56


def test_second_store_in_a_directory_gets_no_lock(judge: Judge, tmp_path: Path) -> None:
    with judge.open(tmp_path, SMALL):
        second = judge.open(tmp_path, SMALL)
        second.over = True
        assert not second.serving


def test_snapshot_sees_content_not_holes(tmp_path: Path) -> None:
    (tmp_path / "zeros").write_bytes(bytes(1 << 20))
    with (tmp_path / "hole").open("wb") as file:
        file.truncate(1 << 20)
    before = snapshot(tmp_path)
    assert before["zeros"] == before["hole"]
    with (tmp_path / "hole").open("r+b") as file:
        file.seek(700_000)
        file.write(b"\1")
    (tmp_path / "zeros").unlink()
    (tmp_path / "new").write_bytes(b"n")
    assert changes(before, snapshot(tmp_path)) == {
        "removed": {"zeros": 1 << 20},
        "added": {"new": 1},
        "changed": {"hole": 1 << 20},
    }


@pytest.mark.parametrize(
    ("text", "value"), [("", 0), ("TagA", 2598919), ("polygenelubricants", -(1 << 31)), ("\U0001f600", 1772899)]
)
def test_oracle_hash(judge: Judge, text: str, value: int) -> None:
    assert judge.java_hash(text) == value


def test_oracle_texts_and_ids(judge: Judge) -> None:
    assert judge.crc32(b"123456789") == zlib.crc32(b"123456789") & 0x7FFFFFFF
    assert judge.decoded_utf8(b"a\xff\xf0\x9f\x98\x80") == [0x61, 0xFFFD, 0xD83D, 0xDE00]
    assert judge.encoded_utf8("\ud800x") == b"?x"
    assert judge.message_id("127.0.0.1:10911", 255) == "7F00000100002A9F00000000000000FF"
    assert judge.parsed_properties(judge.properties_text({"a": "1", "b": "ü"})) == {"a": "1", "b": "ü"}


def test_judge_that_dies_is_reported_and_comes_back(judge: Judge, tmp_path: Path) -> None:
    store = judge.open(tmp_path, SMALL)
    judge.program.kill()
    store.over = True
    with pytest.raises(JudgeError, match="no open store"):
        store.put({"topic": "T", "body": b"x"})
    assert judge.java_hash("a") == 97


def test_judge_that_hangs_is_killed(judge: Judge, tmp_path: Path) -> None:
    store = judge.open(tmp_path, SMALL)
    store.over = True
    with pytest.raises(JudgeError, match="no answer to putRate"):
        judge.program.ask("putRate", 0.5, store=store._name, message={"topic": "T", "body": "eA=="}, count=100_000_000)
    assert not judge.program.running
    assert judge.java_hash("a") == 97
