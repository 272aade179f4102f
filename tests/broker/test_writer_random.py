"""Random sequences of puts: the writer's bytes and answers are the real store's, and the reader's answers are too."""

import random
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from rmqtool.engine.append.message import Message, MessageBatch
from rmqtool.engine.append.open_writer import new_store
from rmqtool.engine.append.writer_config import WriterConfig
from rmqtool.engine.reading.reader import Reader, open_reader
from rmqtool.engine.rules.broker_rules import BrokerRules
from rmqtool.engine.rules.versions import rules_for
from rmqtool.fixtures.recipe import SMALL, Run
from rmqtool.fixtures.recipes import RECIPES
from rmqtool.formats.batch import BatchPart
from rmqtool.formats.message_id import host_bytes
from rmqtool.formats.properties import encode_properties
from rmqtool.store.config.broker_conf import broker_conf
from rmqtool.store.directory import survey
from rmqtool.store.view import open_directory
from tests.broker.broker import Judge
from tests.broker.versions import ROUTINE
from tests.broker.writing import (
    Put,
    answers_differ,
    differences,
    index_names_clashed,
    judge_message,
    judge_topics,
    put_into_both,
)

JudgeOf = Callable[[str], Judge]
TOPICS = ("T", "TopicTest", "%RETRY%group", "%DLQ%group", "Audit-2")
LONG_TOPICS = tuple("%RETRY%" + "g" * length for length in (120, 121, 180, 248))
BATCHED = {"Packed": {"readQueueNums": 2, "writeQueueNums": 2, "attributes": {"queue.type": "BatchCQ"}}}
TEXT = st.text("abcXYZ019-_ é漢😀", min_size=1, max_size=8)
KEY = st.sampled_from(("AaAa", "BBBB", "AaBB", "order-1", "order-2", "é"))
SIZES = st.one_of(
    st.integers(0, 300),
    st.integers(8000, 20000),
    st.sampled_from((0, 1, 65536 - 91 - 8, 65400, 65535, 70000)),
)


@st.composite
def property_maps(draw: st.DrawFn, *, delays: bool = True) -> dict[str, str]:
    found = draw(st.dictionaries(TEXT, TEXT, max_size=4))
    choices: dict[str, st.SearchStrategy[str]] = {
        "KEYS": st.lists(KEY, min_size=1, max_size=3).map(" ".join),
        "TAGS": st.sampled_from(("TagA", "a||b", "标签")),
        "UNIQ_KEY": st.integers(0, 1 << 96).map(lambda number: f"{number:032X}"),
    }
    if delays:
        choices |= {
            "WAIT": st.sampled_from(("true", "false")),
            "DELAY": st.sampled_from(("0", "1", "3", "18", "25")),
            "INNER_MULTI_DISPATCH": st.sampled_from(("%LMQ%a", "%LMQ%a,%LMQ%b", "%LMQ%c")),
        }
    for name, values in choices.items():
        if draw(st.integers(0, 3)) == 0:
            found[name] = draw(values)
    return sort_as_java(found)


def sort_as_java(found: dict[str, str]) -> dict[str, str]:
    """The order in which the judge fills its map."""
    return dict(sorted(found.items(), key=lambda item: item[0].encode("utf-16-be")))


@st.composite
def puts(draw: st.DrawFn, rules: BrokerRules) -> Put:
    hosts = ("10.1.2.3:50000", "[fe80::1]:77") if rules.ipv6_hosts else ("10.1.2.3:50000",)
    topics = TOPICS + (LONG_TOPICS if rules.reads_v2 else ())
    kind = draw(st.sampled_from(("single",) * 6 + ("batch",) + (("inner",) if rules.inner_batch else ())))
    seed = draw(st.integers(0, 1 << 32))
    message = Message(
        topic="Packed" if kind == "inner" else draw(st.sampled_from(topics)),
        queue_id=draw(st.integers(0, 1)),
        flag=draw(st.integers(-5, 5)),
        born_timestamp_ms=1_700_000_000_000 + seed % 1000,
        born_host=host_bytes(draw(st.sampled_from(hosts))),
        store_host=host_bytes(draw(st.sampled_from(hosts))),
        reconsume_times=draw(st.integers(0, 16)),
    )
    if kind == "single":
        message.sys_flag = draw(st.sampled_from((0, 0, 0, 1, 2, 4, 8, 12)))
        message.prepared_transaction_offset = draw(st.sampled_from((0, 0, 77)))
        message.properties = draw(property_maps())
        message.body = random.Random(seed).randbytes(draw(SIZES))
        return message
    message.properties = draw(property_maps(delays=False))
    sizes = draw(st.lists(st.integers(0, 9000 if kind == "batch" else 400), min_size=1, max_size=5))
    parts = [
        BatchPart(
            seed % 7,
            random.Random(seed + number).randbytes(size),
            encode_properties(draw(property_maps(delays=False)), trailing_separator=True),
        )
        for number, size in enumerate(sizes)
    ]
    return MessageBatch(shared=message, parts=parts, is_inner=kind == "inner")


FEATURES: tuple[dict[str, str], ...] = (
    {},
    {"enabledAppendPropCRC": "true"},
    {"enableLmq": "true", "enableMultiDispatch": "true"},
    {"enableConsumeQueueExt": "true", "mappedFileSizeConsumeQueueExt": "400"},
)


@pytest.mark.parametrize("version", ROUTINE)
@settings(
    max_examples=8,
    deadline=None,
    phases=[Phase.explicit, Phase.generate],
    suppress_health_check=list(HealthCheck),
    print_blob=True,
)
@given(data=st.data())
def test_random_puts_give_the_same_bytes(judge_of: JudgeOf, version: str, data: st.DataObject) -> None:
    check_random_puts(judge_of(version), data)


@pytest.mark.slow
@pytest.mark.parametrize("version", ROUTINE)
@settings(max_examples=150, deadline=None, suppress_health_check=list(HealthCheck), print_blob=True)
@given(data=st.data())
def test_many_random_puts_give_the_same_bytes(judge_of: JudgeOf, version: str, data: st.DataObject) -> None:
    check_random_puts(judge_of(version), data)


# A broker of 4.x begins dispatch anew behind what its queues hold: records at the end that take no queue entry are
# entered into the index once more at every start.
LAST = Message(topic="TopicTest", body=b"the last one of a run")


def check_random_puts(judge: Judge, data: st.DataObject) -> None:
    rules = rules_for(judge.version)
    config = {**SMALL, **data.draw(st.sampled_from(FEATURES))}
    if not rules.record_crc:
        config.pop("enabledAppendPropCRC", None)
    topics = BATCHED if rules.batch_queues else {}
    runs = [Run([*data.draw(st.lists(puts(rules), max_size=25)), LAST]) for _ in range(data.draw(st.integers(1, 2)))]
    with tempfile.TemporaryDirectory() as folder:
        real, ours = Path(folder, "real"), Path(folder, "ours")
        both = put_into_both(judge, runs, real, ours, config, topics)
        assert list(answers_differ(both, rules)) == []
        if not index_names_clashed(real, ours):
            assert list(differences(real, ours)) == []


KEPT_OUT = ("T", "%RETRY%group", "%DLQ%group", "rmq_sys_x", "SCHEDULE_TOPIC_XXXX", "SCHEDULE_TOPIC_XXXX2")


@pytest.mark.parametrize("version", [*ROUTINE, pytest.param("5.5.1", marks=pytest.mark.slow)])
def test_topics_without_further_queues(judge_of: JudgeOf, tmp_path: Path, version: str) -> None:
    rules = rules_for(version)
    listed = {"INNER_MULTI_DISPATCH": "%LMQ%a,%LMQ%b"}
    runs = [Run([*(Message(topic=topic, body=b"x", properties=dict(listed)) for topic in KEPT_OUT), LAST])]
    config = {**SMALL, "enableLmq": "true", "enableMultiDispatch": "true"}
    both = put_into_both(judge_of(version), runs, tmp_path / "real", tmp_path / "ours", config, {})
    assert list(answers_differ(both, rules)) == []
    assert list(differences(tmp_path / "real", tmp_path / "ours")) == []


REFUSED: dict[str, Message] = {
    "topic of 128 characters": Message(topic="t" * 128, body=b"x"),
    "topic of 200 bytes in 100 characters": Message(topic="é" * 100, body=b"x"),
    "retry topic of 256 bytes": Message(topic="%RETRY%" + "g" * 249, body=b"x"),
    "body of 4 MiB and a byte": Message(topic="T", body=bytes((4 << 20) + 1)),
    "body larger than a file": Message(topic="T", body=bytes(70_000)),
    "properties of 32768 bytes": Message(topic="T", body=b"x", properties={"a": "b" * 32_766}),
    "properties of 32767 bytes": Message(topic="T", body=b"x", properties={"a": "b" * 32_764}),
    "properties of 20000 wide characters": Message(topic="T", body=b"x", properties={"a": "漢" * 20_000}),
    "inner count without the flag": Message(topic="T", body=b"x", properties={"INNER_NUM": "2"}),
}


@pytest.mark.parametrize("version", ROUTINE)
def test_what_a_real_store_refuses_is_refused(judge_of: JudgeOf, tmp_path: Path, version: str) -> None:
    rules = rules_for(version)
    refused = dict(REFUSED)
    if not rules.topic_limit_in_bytes:
        del refused["topic of 200 bytes in 100 characters"]  # see the test below
    runs = [Run(list(refused.values()))]
    both = put_into_both(judge_of(version), runs, tmp_path / "real", tmp_path / "ours", SMALL, {})
    assert list(answers_differ(both, rules)) == []
    assert len({result.status for result in both.ours}) > 1
    assert list(differences(tmp_path / "real", tmp_path / "ours")) == []


@pytest.mark.parametrize("version", ROUTINE)
def test_a_topic_that_a_broker_cannot_read_again_is_refused(judge_of: JudgeOf, tmp_path: Path, version: str) -> None:
    """Brokers take it and write its length into one byte, and a start of theirs cuts the log there."""
    rules, judge = rules_for(version), judge_of(version)
    topic = "%RETRY%" + "é" * 100 if rules.topic_limit_in_bytes else "é" * 100
    with judge.open(tmp_path / "real", SMALL) as store:
        one, odd, last = store.put(*({"topic": name, "queueId": 0, "body": b"x"} for name in ("T", topic, "T")))
        assert (one["status"], odd["status"], last["status"]) == ("PUT_OK",) * 3
    report = judge.examine(tmp_path / "real", SMALL)
    assert report["served"]["offsets"]["max"] == odd["physicalOffset"]
    with new_store(tmp_path / "ours", rules, WriterConfig(commitlog_file_size=65536)) as writer:
        results = writer.put_all([Message(topic=name, body=b"x") for name in ("T", topic, "T")])
    assert [result.is_written for result in results] == [True, False, True]
    assert "which a broker takes and cannot read again" in str(results[1].reason)


@pytest.mark.parametrize("version", ["4.9.7", "5.5.0"])
@pytest.mark.parametrize("name", ["many-files", "keys-index", "inner-batch", "batch", "expired-head"])
def test_the_reader_answers_as_the_broker_does(judge_of: JudgeOf, tmp_path: Path, name: str, version: str) -> None:
    """Pulls at random offsets with and without tags, keys over random times: on a store that we made."""
    from rmqtool.fixtures.recipe import make_store

    recipe, rules = RECIPES[name], rules_for(version)
    if not recipe.fits(rules):
        return
    make_store(recipe, tmp_path, version, seed=4)
    chance = random.Random(f"{name} {version}")
    store = survey(open_directory(tmp_path), broker_conf(recipe.settings).settings())
    with open_reader(store, rules) as reader:
        ours = [ask(reader, question) for question in questions(reader, chance)]
        asked = list(questions(reader, random.Random(f"{name} {version}")))
    with judge_of(version).open(tmp_path, recipe.settings, judge_topics(recipe)) as real:
        theirs = [ask_real(real, question) for question in asked]
    assert [(q, a, b) for q, a, b in zip(asked, ours, theirs, strict=True) if a != b] == []
    assert len(asked) > 60


def questions(reader: Reader, chance: random.Random) -> Any:
    for name in reader.queues():
        queue = reader.queue(*name)
        for _ in range(25):
            begin = chance.randrange(-2, queue.max_queue_offset + 4)
            tags = chance.choice((None, None, "created", "created || paid", "absent", "AaAa"))
            yield "pull", *name, begin, chance.choice((1, 2, 16, 32)), tags
    keys = [key for number in range(15) for key in (f"batch-{number}", f"orders-{number}", f"key-{number}")]
    for key in (*keys, "AaAa", "AaBB", "absent"):
        yield "key", chance.choice(("orders", "payments")), key


def ask(reader: Reader, question: tuple[Any, ...]) -> Any:
    if question[0] == "key":
        return [message.physical_offset for message in reader.query_message(question[1], question[2], 64).messages]
    _, topic, queue_id, queue_offset, count, tags = question
    found = reader.get_message(topic, queue_id, queue_offset, count, tags)
    number = sum(message.unit.message_count for message in found.messages if message.unit is not None)
    places = [message.physical_offset for message in found.messages]
    return [found.status.value, found.next_begin_offset, number, places]


def ask_real(real: Any, question: tuple[Any, ...]) -> Any:
    if question[0] == "key":
        return real.query(question[1], question[2], count=64)["served"]
    _, topic, queue_id, queue_offset, count, tags = question
    [row] = real.get(topic, queue_id, [queue_offset], count=count, tags=tags)["rows"]
    return row[1:5]


def test_a_put_is_told_to_the_judge_as_it_is() -> None:
    message = Message(topic="T", queue_id=3, body=b"b", sys_flag=8, born_host=host_bytes("10.1.2.3:5"))
    told = judge_message(message)
    assert (told["topic"], told["queueId"], told["body"], told["bornHost"]) == ("T", 3, b"b", "10.1.2.3:5")
