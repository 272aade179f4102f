"""The same puts into a real store and into one of ours, and the two side by side."""

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from rmqtool.engine.append.message import Message, MessageBatch
from rmqtool.engine.append.open_writer import config_of, existing_store, new_store
from rmqtool.engine.append.rewrite import hash_map_order
from rmqtool.engine.append.status import PutResult, status_name
from rmqtool.engine.append.writer_config import WriterConfig, config_from
from rmqtool.engine.rules.broker_rules import BrokerRules
from rmqtool.engine.rules.versions import rules_for
from rmqtool.fixtures.recipe import End, Recipe, Run
from rmqtool.formats.message_id import host_text
from rmqtool.formats.properties import decode_properties, encode_properties
from rmqtool.store.config.broker_conf import broker_conf
from rmqtool.store.directory import Store, survey
from rmqtool.store.view import open_directory
from tests.broker.broker import Answer, Judge, setting_texts

Put = Message | MessageBatch
FOLDERS = ("consumequeue", "consumequeue_ext", "batchconsumequeue")


@dataclass
class Both:
    """What one put became in the real store and in ours."""

    real: list[Answer]
    ours: list[PutResult]


def judge_topics(recipe: Recipe) -> dict[str, Any]:
    return {
        name: {"readQueueNums": spec.queue_count, "writeQueueNums": spec.queue_count, "attributes": spec.attributes}
        for name, spec in recipe.topics.items()
    }


def judge_message(put: Put) -> dict[str, Any]:
    """A put in the judge's words."""
    message = put.shared if isinstance(put, MessageBatch) else put
    told: dict[str, Any] = {
        "topic": message.topic,
        "queueId": message.queue_id,
        "body": message.body,
        "flag": message.flag,
        "sysFlag": message.sys_flag,
        "bornTimestamp": message.born_timestamp_ms,
        "bornHost": host_text(message.born_host),
        "storeHost": host_text(message.store_host),
        "reconsumeTimes": message.reconsume_times,
        "preparedTransactionOffset": message.prepared_transaction_offset,
        "properties": dict(message.properties),
    }
    if isinstance(put, MessageBatch):
        del told["body"]
        told["innerBatch" if put.is_inner else "batch"] = [
            {"body": part.body, "flag": part.flag, "properties": decode_properties(part.properties)}
            for part in put.parts
        ]
    return told


def at_time(put: Put, store_timestamp_ms: int | None, rules: BrokerRules) -> Put:
    """The put as the judge makes it, at the time that the real store gave it."""
    if not isinstance(put, MessageBatch):
        return replace(put, store_timestamp_ms=store_timestamp_ms)
    parts = [replace(part, properties=_part_text(part.properties, rules)) for part in put.parts]
    return replace(put, shared=replace(put.shared, store_timestamp_ms=store_timestamp_ms), parts=parts)


def _part_text(text: bytes, rules: BrokerRules) -> bytes:
    """The order of a map that Java made as a copy of a sorted one: its table is as small as it may be."""
    found = decode_properties(text)
    capacity = 1
    while capacity < int(len(found) / 0.75 + 1):
        capacity *= 2
    order = hash_map_order(sorted(found), capacity)
    return encode_properties({name: found[name] for name in order}, trailing_separator=rules.trailing_separator)


def put_into_both(
    judge: Judge, runs: Sequence[Run], real: Path, ours: Path, config: Mapping[str, Any], topics: Mapping[str, Any]
) -> Both:
    """Runs of puts, one store after the other; ours takes the real one's times."""
    rules = rules_for(judge.version)
    conf = broker_conf(setting_texts(config))
    batch_topics = frozenset(n for n, t in topics.items() if t.get("attributes", {}).get("queue.type") == "BatchCQ")
    writer_config = replace(config_from(conf), batch_topics=batch_topics)
    both = Both([], [])
    for number, run in enumerate(runs):
        answers = _put_real(judge, run, real, config, topics)
        puts = [at_time(put, a.get("storeTimestamp"), rules) for put, a in zip(run.puts, answers, strict=True)]
        with _our_writer(ours, rules, writer_config, conf.settings(), is_new=number == 0) as writer:
            if run.end.value is not None:
                writer.crash_after(run.end.value)
            both.ours += writer.put_all(puts)
            writer.close(crash=run.end is not End.CLEAN)
        both.real += answers
    return both


NEVER_COMMITS = {"commitCommitLogLeastPages": 1 << 20, "commitCommitLogThoroughInterval": 1 << 30}
"""What the broker's own memory holds stays there until a file is full."""
PUT_TOGETHER = 8
"""Few enough that they fill no two index files: two that are made in one millisecond have one name."""


def _put_real(
    judge: Judge, run: Run, directory: Path, config: Mapping[str, Any], topics: Mapping[str, Any]
) -> list[Answer]:
    config = {**config, **(NEVER_COMMITS if run.end is End.KILLED_UNCOMMITTED else {})}
    store = judge.open(directory, config, topics)
    assert store.serving, store.opened
    if run.end is End.KILLED_BEFORE_DISPATCH:
        store.stop_dispatch()
    if run.end in (End.KILLED_BEFORE_DISPATCH, End.KILLED_UNCOMMITTED):
        answers = store.put(*map(judge_message, run.puts))
        store.halt()
        return answers
    answers = []
    for at in range(0, len(run.puts), PUT_TOGETHER):
        together = run.puts[at : at + PUT_TOGETHER]
        if run.end is End.KILLED_BEFORE_INDEX and at + PUT_TOGETHER >= len(run.puts):
            answers += store.put(*map(judge_message, together[:-1]))
            store.wait_dispatched()
            store.stop_index()
            together = together[-1:]
        answers += store.put(*map(judge_message, together))
        store.wait_dispatched()
        time.sleep(0.002)
    if run.end is End.CLEAN:
        store.shutdown()
    else:
        store.halt()
    return answers


def _our_writer(directory: Path, rules: BrokerRules, config: WriterConfig, settings: Any, *, is_new: bool) -> Any:
    if is_new:
        return new_store(directory, rules, config)

    def look() -> Store:
        return survey(open_directory(directory), settings)

    return existing_store(directory, look, rules, config_of(look(), config))


def differences(real: Path, ours: Path, log_directories: Sequence[str] = ("commitlog",)) -> Iterator[str]:
    """Where log, queues and index of two stores differ; index files are told by their order, not by their names."""
    for folder in (*log_directories, *FOLDERS):
        theirs, mine = _files(real / folder), _files(ours / folder)
        for name in sorted(theirs.keys() ^ mine.keys()):
            yield f"{folder}/{name}: only in {'the real store' if name in theirs else 'ours'}"
        for name in sorted(theirs.keys() & mine.keys()):
            yield from _difference(f"{folder}/{name}", theirs[name], mine[name])
    theirs, mine = _files(real / "index"), _files(ours / "index")
    if len(theirs) != len(mine):
        yield f"index: {len(theirs)} files, ours {len(mine)}"
    for name, other in zip(sorted(theirs), sorted(mine), strict=False):
        yield from _difference(f"index/{name}", theirs[name], mine[other])


def index_names_clashed(real: Path, ours: Path) -> bool:
    """Whether the real store has fewer index files: two that it made in one millisecond are one file."""
    return len(_files(real / "index")) < len(_files(ours / "index"))


def _files(folder: Path) -> dict[str, Path]:
    return {str(path.relative_to(folder)): path for path in folder.rglob("*") if path.is_file()}


def _difference(name: str, real: Path, ours: Path) -> Iterator[str]:
    block = 1 << 24
    if real.stat().st_size != ours.stat().st_size:
        yield f"{name}: {real.stat().st_size} bytes, ours {ours.stat().st_size}"
        return
    if real.stat().st_size > 64 * block:  # a file of default size is nearly all hole
        block = 1 << 16
        with real.open("rb") as one, ours.open("rb") as other:
            if one.read(block) != other.read(block):
                yield f"{name}: the first {block} bytes differ"
        return
    theirs, mine = real.read_bytes(), ours.read_bytes()
    if theirs != mine:
        at = next(place for place, (a, b) in enumerate(zip(theirs, mine, strict=True)) if a != b)
        yield f"{name} at {at}: {theirs[at : at + 24].hex()}, ours {mine[at : at + 24].hex()}"


def answers_differ(both: Both, rules: BrokerRules) -> Iterator[str]:
    """Puts whose status, place, queue offset or id differ."""
    for number, (real, ours) in enumerate(zip(both.real, both.ours, strict=True)):
        theirs: tuple[Any, ...] = real["status"], "PUT_OK" if real.get("appendStatus") == "PUT_OK" else None
        mine: tuple[Any, ...] = status_name(ours.status, rules), "PUT_OK" if ours.is_written else None
        if ours.is_written and theirs == mine:
            theirs += tuple(real[name] for name in ("physicalOffset", "size", "queueOffset", "messageId"))
            mine += (ours.physical_offset, ours.size, ours.queue_offset, ours.message_id)
        if theirs != mine:
            yield f"put {number}: {theirs}, ours {mine} ({ours.reason})"
