"""Configuration, broker logs and small files in a bundle consist of what is declared of them, whatever they hold."""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from rmqtool.evidence.broker_log import end_of_log
from rmqtool.evidence.names import BundleNames
from rmqtool.evidence.pseudonyms import Pseudonyms
from rmqtool.evidence.rebuild_config import names_in_config, shape_of
from rmqtool.evidence.store_copy import redact_config
from rmqtool.store.config.config_kinds import CONFIG_KINDS, Attributes, Map, Shape
from rmqtool.store.relaxed_json import parse_relaxed_json
from tests import golden_stores
from tests.commands.transcripts import rmqtool
from tests.conftest import Unpacked
from tests.evidence.leak_scan import contents

FILES = sorted(kind.path.rpartition("/")[2] for kind in CONFIG_KINDS)


def document(shape: Shape, texts: Iterator[str]) -> Any:
    """Something of each part of a shape, and fields that are not declared, with a text of its own in each place."""
    match shape:
        case Map(values, with_queue):
            return {f"{next(texts)}_7" if with_queue else next(texts): document(values, texts) for _ in range(2)}
        case Attributes():
            return {"+queue.type": next(texts), "queue.type": "BatchCQ", next(texts): next(texts)}
        case dict(declared):
            known = {name: document(one, texts) for name, one in declared.items()}
            return {**known, next(texts): next(texts), "undeclared": {next(texts): [next(texts)]}}
        case [item]:
            return [document(item, texts), document(item, texts)]
        case _:
            return next(texts)


def secrets() -> Iterator[str]:
    return (f"secret{number}words" for number in itertools.count(100))


def quoted(value: Any) -> str:
    return json.dumps(value, indent=1)


def with_escapes(value: Any) -> str:
    text = json.dumps(value)
    return re.sub(r"secret", lambda match: "".join(f"\\u{ord(letter):04x}" for letter in match[0]), text)


def with_bare_keys(value: Any) -> str:
    return re.sub(r'"(\w+)":', r"\1:", json.dumps(value))


@pytest.mark.parametrize("name", FILES)
@pytest.mark.parametrize("write", [quoted, with_escapes, with_bare_keys])
@pytest.mark.parametrize("hides", [False, True])
def test_no_text_of_a_configuration_file_stays_that_only_one_place_has(
    name: str, write: Callable[[Any], str], hides: bool
) -> None:
    shape = shape_of(f"config/{name}")
    assert shape is not None
    raw = write(document(shape, secrets())).encode()
    parse_relaxed_json(raw.decode())
    shown = redact_config(name, raw, Pseudonyms(b"1" * 32, names=BundleNames(b"2" * 32, hides=hides)))
    assert b"secret" not in shown
    assert b"undeclared" not in shown
    assert len(shown) == len(raw)
    parse_relaxed_json(shown.decode())


@pytest.mark.parametrize("name", FILES)
def test_what_a_broker_wrote_keeps_its_numbers_and_its_names(name: str, tmp_path: Path) -> None:
    """The same values come out, but for texts, of every such file that a real broker left."""
    seen = 0
    for store_name in ("broker-5.5.0-pop", "broker-5.5.0-compaction", "broker-5.5.0-timer"):
        store = golden_stores.unpack(store_name, tmp_path / store_name)
        for path in [*store.glob(f"config/{name}"), *store.glob(f"compaction/{name}")]:
            raw = path.read_bytes()
            names = BundleNames(b"2" * 32, hides=False)
            names._know(names_in_config(str(path), raw))
            shown = redact_config(str(path), raw, Pseudonyms(b"1" * 32, names=names))
            assert parse_relaxed_json(shown.decode()) == parse_relaxed_json(raw.decode())
            seen += 1
    assert seen or name in {"lmqConsumerOffset.json", "topicQueueMapping.json"}


def test_ten_files_with_hidden_names_name_nobody(golden_copy: Unpacked, tmp_path: Path) -> None:
    """A topic, a group and a broker that these files alone name."""
    store = golden_copy("5.5.0-clean-basic")
    (store / "config").mkdir(exist_ok=True)
    texts = itertools.cycle(["zonk-topic", "zonk-group", "zonk-broker"])
    for name in FILES:
        shape = shape_of(name)
        assert shape is not None
        place = store / ("compaction" if name == "position-checkpoint" else "config") / name
        place.write_text(json.dumps(document(shape, texts)))
        place.with_name(f"{name}.bak").write_text(json.dumps(document(shape, texts)))
    for other in ("coldDataFlowCtr.json", "broadcastOffset.json", "forbidden.json"):
        (store / "config" / other).write_text('{"zonk-topic": {zonk-group: "zonk\\u002dbroker"}}')
    log = tmp_path / "broker.log"
    log.write_text("2026-01-01 10:00:00 INFO main - zonk-topic of zonk-group at zonk-broker, zonk-else\n")
    ran = rmqtool("evidence", store, "--output", tmp_path / "bundle", "--hide-names", "--broker-log", log)
    assert ran.code == 0, ran.err
    content = b"\n".join(contents(tmp_path / "bundle"))
    assert re.findall(rb"zonk\W?\w*", content) == []


LINES = {
    "2026-01-01 10:00:00 INFO FlushRealTimeService - flush 17 pages, cost 3ms at 10.1.2.3:9876\n": None,
    "2026-01-01 10:00:00 WARN SendMessageThread_1 - [ME] putMessage in lock cost(ms)=501, bodyLength={} secret\n":
        "2026-01-01 10:00:00 WARN SendMessageThread_1 - [xx] putMessage in lock cost(ms)=501, xxxxxxxxxx={} xxxxxx\n",
    "2026-01-01 10:00:00 WARN main - failed body={a: {b}} tags=secret topic=known\n":
        "2026-01-01 10:00:00 WARN main - failed body=" + "x" * 32 + "\n",
    "2026-01-01 10:00:00,123 ERROR main - dispatch failed\njava.lang.RuntimeException: secret 17\n"
    "\tat org.apache.rocketmq.store.CommitLog.run(CommitLog.java:42)\n":
        "2026-01-01 10:00:00,123 ERROR main - dispatch failed\njava.lang.RuntimeException: xxxxxx 17\n"
        "\tat org.apache.rocketmq.store.CommitLog.run(CommitLog.java:42)\n",
    "2026-01-01 10:00:00 WARN main - wrong keys: [secret\nsecret more\n2026-01-01 10:00:01 INFO main - start ok\n":
        "2026-01-01 10:00:00 WARN main - wrong keys:xxxxxxxx\nxxxxxxxxxxx\n2026-01-01 10:00:01 INFO main - start ok\n",
    "secret end of an entry\n2026-01-01 10:00:00 INFO main - topic known, group nobody\n":
        "x" * 22 + "\n2026-01-01 10:00:00 INFO main - topic known, group xxxxxx\n",
    "2026-01-01 10:00:00 INFO secretThreads - s\u00e9cr\u00e9t \x1b[31m\n":
        "2026-01-01 10:00:00 INFO xxxxxxxxxxxxx - xxxxxxxx x[31m\n",
}  # fmt: skip


@pytest.mark.parametrize("line", LINES)
def test_of_a_log_stays_what_is_recognized(line: str, tmp_path: Path) -> None:
    log = tmp_path / "broker.log"
    log.write_text(line)
    names = BundleNames(b"2" * 32, hides=False)
    names._know([b"known"])
    shown = end_of_log(log, Pseudonyms(b"1" * 32, names=names)).decode()
    assert shown == (LINES[line] or line)


@pytest.mark.parametrize("name", ["abort", "abort.bak", "epochFileCheckpoint", "brokerIdentity", "lock", "note.txt"])
def test_small_files_hold_numbers_or_nothing(name: str, golden_copy: Unpacked, tmp_path: Path) -> None:
    store = golden_copy("5.5.0-clean-basic")
    (store / name).write_text("17\nsecretword")
    assert rmqtool("evidence", store, "--output", tmp_path / "bundle").code == 0
    assert not any(b"secretword" in content for content in contents(tmp_path / "bundle"))
