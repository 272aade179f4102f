"""Check E: what `append` writes behind a store's end is what the broker writes there, byte for byte."""

import random
from dataclasses import replace
from pathlib import Path
from typing import Any

from rmqtool.engine.append.message import Message, MessageBatch
from rmqtool.engine.append.open_writer import config_of, existing_store
from rmqtool.engine.append.writer_config import config_from
from rmqtool.engine.rules.versions import rules_for
from rmqtool.errors import RmqtoolError
from rmqtool.formats.batch import BatchPart
from rmqtool.formats.java_properties import parse_properties
from rmqtool.formats.message_id import host_bytes
from rmqtool.formats.properties import encode_properties
from rmqtool.store.config.broker_conf import broker_conf
from rmqtool.store.directory import Store, survey
from rmqtool.store.view import open_directory
from tests.broker.broker import Answer
from tests.broker.program import JudgeError
from tests.broker.writing import Both, Put, answers_differ, at_time, differences, index_names_clashed
from tests.judge.case import Case
from tests.judge.check_verify import DEFAULT_ENTRIES
from tests.judge.messages import BATCHED, Sender
from tests.judge.target import BLANK_MAGIC, UNIT, record_fields
from tests.judge.unjudged import BLANK_HEADER, EXTENSION_END

SHARE = 0.3
COUNT = 8


def check_append(case: Case, repaired: Path) -> None:
    """In some cases: both put the same messages into a copy of a repaired store, at the same times.

    Not where the queues are in RocksDB: append writes none there.
    """
    draw = random.Random(f"append {case.name}")
    if draw.random() > SHARE or case.base.plan.has_database or (repaired / "abort").exists():
        return
    plan = case.base.plan
    messages = Sender(draw, plan.features, plan.topics, plan.queues).messages(COUNT)
    with case.copied(repaired, "real") as real, case.copied(repaired, "ours") as ours:
        try:
            store = case.judge.open(real, plan.config, plan.topic_settings)
            if not store.serving:
                store.abandon()
                return
            if not store.opened["hooks"]:  # the broker's part of a put is not published for this version
                for row in messages:
                    row["properties"].pop("DELAY", None)
            answers = store.put(*messages)
            store.wait_dispatched()
            store.shutdown()
            times = [_stored_at(case, real, answer) for answer in answers]
            both = Both(answers, _put_ours(case, ours, messages, times))
        except JudgeError as trouble:
            case.differs("E broker died", trouble)
            return
        except RmqtoolError as trouble:
            case.differs(f"E append refused: {type(trouble).__name__}", trouble)
            return
        for copy in (real, ours):
            _clear_blanks(case, copy, answers)
        rules = rules_for(case.version)
        found = [*answers_differ(both, rules)]
        found += [
            difference
            for difference in differences(real, ours, plan.log_directories)
            if not (difference.startswith("index") and _index_may_differ(case, real, ours))
            and not _start_unlinks(ours, difference, plan.log_directories)
        ]
        if found:
            case.differs(f"E {found[0].split('/')[0].split(' ')[0]} differs", "; ".join(found[:5]))


def _clear_blanks(case: Case, path: Path, answers: list[Answer]) -> None:
    """Zero what lies behind the headers of blanks: old brokers leave there what their memory held; nobody reads it."""
    plan = case.base.plan
    ends = {at + size for at, size in case.truth.sizes.items()}
    ends |= {answer["physicalOffset"] + answer["size"] for answer in answers if answer.get("size")}
    positions = {end % plan.log_file_size for end in ends} - {0}  # a fault may have given a file another's name
    for file in (file for name in plan.log_directories for file in (path / name).glob("[0-9]*")):
        with file.open("r+b") as log:
            for position in positions:
                log.seek(position)
                header = log.read(BLANK_HEADER)
                if int.from_bytes(header[4:]) == BLANK_MAGIC:
                    rest = int.from_bytes(header[:4]) - BLANK_HEADER
                    log.seek(position + BLANK_HEADER)
                    log.write(bytes(max(0, min(rest, file.stat().st_size - position - BLANK_HEADER))))


def _start_unlinks(store: Path, difference: str, log_directories: tuple[str, ...]) -> bool:
    """Whether a file that only append left lies wholly before the address of its queue's first unit in the log.

    A start of a broker unlinks such a file of an extension, append does not.
    """
    file, only_ours, _ = difference.partition(": only in ours")
    path = store / file
    if not file.startswith("consumequeue_ext/") or not only_ours:
        return False
    logs = [log for name in log_directories for log in (store / name).glob("[0-9]*") if log.name.isdigit()]
    log_start = min((int(log.name) for log in logs), default=0)
    queue = store / "consumequeue" / path.parent.relative_to(store / "consumequeue_ext")
    content = b"".join(unit_file.read_bytes() for unit_file in sorted(queue.glob("*")))
    units = [content[at : at + UNIT] for at in range(0, len(content), UNIT)]
    first = next((unit for unit in units if any(unit) and int.from_bytes(unit[:8], "big") >= log_start), None)
    if first is None:
        return False
    address = int.from_bytes(first[12:], "big", signed=True) + (1 << 63)
    return int(path.name) + path.stat().st_size <= address < EXTENSION_END


def _index_may_differ(case: Case, real: Path, ours: Path) -> bool:
    """Whether the broker's index is not a matter of the new messages alone.

    Two files of one millisecond are one file; and brokers of 4.x enter records at the log's end that are in no queue
    once more at each start.
    """
    last = max(case.truth.sizes, default=0)
    queued = last in case.intact and last in case.truth.served.values()
    return index_names_clashed(real, ours) or not (queued or case.version.startswith("5."))


def _stored_at(case: Case, path: Path, answer: Answer) -> int | None:
    """The store time in the record; 4.4.0 answers another one for a batch."""
    at = answer.get("physicalOffset")
    if at is None or answer.get("appendStatus") != "PUT_OK":
        return answer.get("storeTimestamp")
    plan = case.base.plan
    start = at - at % plan.log_file_size
    files = [path / name / f"{start:020d}" for name in plan.log_directories]
    found = [file for file in files if file.exists()]
    if not found:
        return answer.get("storeTimestamp")
    with found[0].open("rb") as source:
        source.seek(at - start)
        position, width = record_fields(source.read(answer["size"]))["store-time"]
        source.seek(at - start + position)
        return int.from_bytes(source.read(width), "big")


def _put_ours(case: Case, path: Path, messages: list[dict[str, Any]], times: list[int | None]) -> list[Any]:
    rules = rules_for(case.version)
    conf = broker_conf(parse_properties(_conf_text(case).encode()))
    inner = frozenset([BATCHED] if "inner" in case.base.plan.features else [])

    def look() -> Store:
        return survey(open_directory(path), conf.settings())

    config = config_of(look(), replace(config_from(conf), batch_topics=inner))
    puts = [at_time(put_of(row), time, rules) for row, time in zip(messages, times, strict=True)]
    with existing_store(path, look, rules, config) as writer:
        results = writer.put_all(puts)
        writer.close(crash=False)
    return results


def _conf_text(case: Case) -> str:
    """The broker's configuration, with the default that a lone index file of another length no longer shows."""
    names_size = "maxIndexNum" in case.base.plan.config
    has_other_length = any(fault.name in {"index.cut", "index.longer"} for fault in case.faults)
    return case.base.plan.conf_text + (
        f"maxIndexNum={DEFAULT_ENTRIES}\n" if has_other_length and not names_size else ""
    )


def _in_order(properties: dict[str, str]) -> dict[str, str]:
    return dict(sorted(properties.items(), key=lambda item: item[0].encode("utf-16-be")))


def put_of(row: dict[str, Any]) -> Put:
    """A message in the words of the writer; the judge fills its maps in the order of their names."""
    message = Message(
        topic=row["topic"],
        queue_id=row["queueId"],
        flag=row["flag"],
        sys_flag=row.get("sysFlag", 0),
        born_timestamp_ms=row["bornTimestamp"],
        born_host=host_bytes(row.get("bornHost", "127.0.0.1:40000")),
        store_host=host_bytes(row.get("storeHost", "127.0.0.1:10911")),
        reconsume_times=row.get("reconsumeTimes", 0),
        prepared_transaction_offset=row.get("preparedTransactionOffset", 0),
        properties=_in_order(row["properties"]),
    )
    parts = row.get("batch", row.get("innerBatch"))
    if parts is None:
        message.body = row["body"]
        return message
    packed = [
        BatchPart(part["flag"], part["body"], encode_properties(part["properties"], trailing_separator=True))
        for part in parts
    ]
    return MessageBatch(shared=message, parts=packed, is_inner="innerBatch" in row)
