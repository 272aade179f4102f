"""Bases: stores that real brokers wrote with random features, and what the same and other brokers serve of them."""

import json
import random
import shutil
import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from tests.broker.broker import Judge, OpenStore
from tests.broker.files import copy_store
from tests.broker.program import JudgeError
from tests.judge.messages import BATCHED, Sender
from tests.judge.tool import rmqtool

JudgeOf = Callable[[str], Judge]
VERSIONS = ("4.4.0", "4.9.7", "4.9.8", "5.1.4", "5.3.1", "5.3.3", "5.4.0", "5.5.0", "5.5.1")
PUT_TOGETHER = 8
"""Few enough that they fill no two index files: two that are made in one millisecond have one name."""
ALWAYS = ("batch", "delay", "half", "flagged", "packed", "retry")
SINCE = {
    "v6": (4, 6, 0),
    "paths": (4, 9, 2),
    "light": (4, 9, 3),
    "inner": (5, 0, 0),
    "long": (5, 1, 0),
    "crc": (5, 2, 0),
    "ext": (4, 4, 0),
    "defaults": (4, 4, 0),
}
FILE, ROCKSDB, ANY = "file", "rocksdb", "any"
"""Where a store has its consume queues."""
ROCKSDB_SINCE = (5, 2, 0)
NOT_IN_ROCKSDB = {"inner", "ext", "light"}
"""Batch queues and extensions are files; a store does not list its light queues that are in RocksDB."""
NOT_SET_IN_ROCKSDB = {"enableLmq", "enableMultiDispatch", "enableConsumeQueueExt", "mappedFileSizeConsumeQueueExt"}
STORE_TYPE = {"storeType": "defaultRocksDB"}
STOPS = 5
SETTLES, SETTLE_S = 40, 0.25
ROCKSDB_FORMS = ((ROCKSDB, ROCKSDB), (ROCKSDB, ROCKSDB), (ROCKSDB, ROCKSDB), (FILE, ROCKSDB), (ROCKSDB, FILE))
"""Where the queues were written, and where they are: the others are converted."""
CLEAN, KILLED, KILLED_BEFORE_DISPATCH = "clean", "killed", "killed before dispatch"


@dataclass(frozen=True)
class Plan:
    """What a base is made of; all of it follows from seed, version and number."""

    name: str
    version: str
    features: frozenset[str]
    config: Mapping[str, Any]
    topics: tuple[str, ...]
    queues: int
    runs: tuple[tuple[int, str], ...]
    """Puts of each run, and how it ends."""
    queues_written: str = FILE
    queues_in: str = FILE
    own_topics: tuple[str, ...] = ()
    """The broker's own topics that it is told of too."""

    @property
    def topic_settings(self) -> dict[str, Any]:
        """What the broker is told of topics."""
        named = {
            topic: {"readQueueNums": 8, "writeQueueNums": 8, "attributes": {}}
            for topic in (*self.own_topics, *self.topics)
        }
        if "inner" in self.features:
            named[BATCHED] = {"readQueueNums": 8, "writeQueueNums": 8, "attributes": {"queue.type": "BatchCQ"}}
        return named

    @property
    def has_database(self) -> bool:
        return self.queues_in == ROCKSDB

    @property
    def log_directories(self) -> tuple[str, ...]:
        return tuple(str(self.config.get("storePathCommitLog", "commitlog")).split(","))

    @property
    def log_file_size(self) -> int:
        return int(self.config.get("mappedFileSizeCommitLog", 1 << 30))

    @property
    def conf_text(self) -> str:
        """The same settings as a broker's properties file."""
        return self.conf_of(self.queues_in)

    def conf_of(self, queues: str) -> str:
        """The same with the queues on one of the sides."""
        return "".join(
            f"{name}={str(value).lower() if isinstance(value, bool) else value}\n"
            for name, value in self.config_of(queues).items()
        )

    def config_of(self, queues: str) -> dict[str, Any]:
        """The settings with the queues on one of the sides."""
        config = {name: value for name, value in self.config.items() if name not in STORE_TYPE}
        return config | (STORE_TYPE if queues == ROCKSDB else {})


@dataclass
class Truth:
    """What a broker of one version says of the undamaged base.

    Attributes:
        sizes: size of each record by its physical offset, in log order.
        served: physical offset by topic, queue id and queue offset.
        times: store time by physical offset.
        keys: physical offsets by topic and key.
        queues: (min, max) by topic and queue id.
        places: physical offset, topic, queue id and queue offset of each record, as the record has them.
    """

    sizes: dict[int, int]
    served: dict[tuple[str, int, int], int]
    times: dict[int, int]
    keys: dict[tuple[str, str], set[int]]
    queues: dict[tuple[str, int], tuple[int, int]]
    places: list[tuple[int, str, int, int]]


@dataclass
class Base:
    """A base on disk; `early` is a copy of it as it was after its first run, where there were several."""

    plan: Plan
    path: Path
    early: Path | None
    truths: dict[str, Truth] = field(default_factory=dict)
    starts: dict[str, tuple[dict[str, Any], dict[str, Any]]] = field(default_factory=dict)
    """By version what its start on a copy did, and what it then served."""

    def truth(self, judge: Judge, scratch: Path) -> Truth:
        """What this broker serves of a copy."""
        if judge.version not in self.truths:
            copy = copy_store(self.path, scratch / f"truth-{judge.version}")
            store = judge.open(copy, self.plan.config, self.plan.topic_settings)
            assert store.serving, (self.plan, store.opened)
            if self.plan.has_database:
                settled_read(store, self.plan)
            read = store.read(times=0)
            self.truths[judge.version] = truth_of(read, self.plan)
            self.starts[judge.version] = store.opened, read
            store.abandon()
            shutil.rmtree(copy, ignore_errors=True)
        return self.truths[judge.version]


def truth_of(read: Mapping[str, Any], plan: Plan) -> Truth:
    """The judge's report in our words."""
    return Truth(
        {row[0]: row[1] for row in read["commitLog"] if len(row) == 2},
        served_of(read),
        {row[0]: row[4] for row in read["records"]},
        {(row[0], row[1]): set(row[2]) for row in read["keys"] if not (len(row) > 3 and "type" in row[3])},
        bounds_of(read, plan),
        [(row[0], row[1], row[2], row[3]) for row in read["records"]],
    )


def served_of(read: Mapping[str, Any]) -> dict[tuple[str, int, int], int]:
    return {
        (queue["topic"], queue["queueId"], row[0]): row[2]
        for queue in read["queues"]
        for row in queue.get("messages", ())
        if row[1] == "FOUND"
    }


def whole_served(read: Mapping[str, Any], sizes: Mapping[int, int]) -> dict[tuple[str, int, int], int]:
    """The same without records of which the queue's unit gives a part only: nobody can decode those."""
    short = {
        (queue["topic"], queue["queueId"], row[0])
        for queue in read["queues"]
        for row in queue.get("messages", ())
        if row[1] == "FOUND" and row[3] is not None and row[3][1] < sizes.get(row[2], 0)
    }
    return {name: at for name, at in served_of(read).items() if name not in short}


def bounds_of(read: Mapping[str, Any], plan: Plan) -> dict[tuple[str, int], tuple[int, int]]:
    """Minimum and maximum of each queue that is there; one in RocksDB is listed after somebody asked for it."""
    return {
        (queue["topic"], queue["queueId"]): (max(0, queue["min"]), queue["max"])
        for queue in read["queues"]
        if "error" not in queue and (queue["known"] or plan.has_database) and queue["max"] > 0
    }


def numbers_of(version: str) -> tuple[int, ...]:
    return tuple(map(int, version.split(".")))


def plan_of(seed: int, version: str, number: int, queues: str = FILE) -> Plan:
    """The plan of a base."""
    plan = _plan_of_files(seed, version, number)
    name = f"{queues}-{plan.name}"
    if queues == FILE or numbers_of(version) < ROCKSDB_SINCE:
        return replace(plan, name=plan.name if queues == FILE else name)
    draw = random.Random(f"queues {name}")
    if queues == ANY and draw.random() < 0.5:
        return replace(plan, name=name)
    written, now_in = draw.choice(ROCKSDB_FORMS)
    runs = plan.runs if written == now_in else (*plan.runs[:-1], (plan.runs[-1][0], CLEAN))
    config = {setting: value for setting, value in plan.config.items() if setting not in NOT_SET_IN_ROCKSDB}
    if now_in == ROCKSDB:
        config |= STORE_TYPE
    features = plan.features - NOT_IN_ROCKSDB
    return replace(plan, name=name, features=features, config=config, runs=runs,
                   queues_written=written, queues_in=now_in)  # fmt: skip


def _plan_of_files(seed: int, version: str, number: int) -> Plan:
    draw = random.Random(f"base {seed} {version} {number}")
    there = [name for name, since in SINCE.items() if since <= numbers_of(version)]
    features = {name for name in ALWAYS if draw.random() < 0.5}
    features |= {name for name in there if draw.random() < 0.15}
    config: dict[str, Any] = {}
    if "defaults" not in features:
        config["mappedFileSizeCommitLog"] = draw.choice((65536, 65536, 32768, 131072, 50000))
        config["mappedFileSizeConsumeQueue"] = draw.choice((600, 600, 400, 2000, 20000))
        config["maxHashSlotNum"], config["maxIndexNum"] = draw.choice(((100, 200), (50, 120), (1000, 4000)))
        if numbers_of(version) >= (5, 0, 0):
            config["mapperFileSizeBatchConsumeQueue"] = draw.choice((460, 4600))
    if "paths" in features:
        config["storePathCommitLog"] = draw.choice(("commitlog-a,commitlog-b", "log/one,log/two,log/three"))
    if "light" in features:
        config |= {"enableLmq": True, "enableMultiDispatch": True}
    if "crc" in features:
        config["enabledAppendPropCRC"] = True
        config["forceVerifyPropCRC"] = draw.random() < 0.3
    if "ext" in features:
        config |= {"enableConsumeQueueExt": True, "mappedFileSizeConsumeQueueExt": draw.choice((400, 4000))}
    topics = tuple(draw.sample(("Orders", "Payments", "T", "Audit-2"), draw.randrange(1, 4)))
    ends = (CLEAN, CLEAN, KILLED, KILLED, KILLED_BEFORE_DISPATCH)
    runs = tuple((draw.randrange(40, 130), draw.choice(ends)) for _ in range(draw.choice((1, 2, 2, 3))))
    return Plan(f"{seed}.{version}.{number}", version, frozenset(features), config, topics, draw.randrange(1, 5), runs)


def write_base(plan: Plan, judge: Judge, folder: Path) -> Base:
    """Write a base with a real store; a killed end is a copy of the running store's files."""
    folder.mkdir(parents=True)
    draw = random.Random(f"messages {plan.name}")
    sender = Sender(draw, plan.features, plan.topics, plan.queues)
    path, early = folder / "run-0", None
    for number, (count, end) in enumerate(plan.runs):
        store = judge.open(path, plan.config_of(plan.queues_written), plan.topic_settings)
        assert store.serving, (plan, store.opened)
        _put(store, sender.messages(count), dispatched=end != KILLED_BEFORE_DISPATCH)
        after = folder / f"run-{number + 1}"
        if end == CLEAN:
            _stop(store, plan)
            path.rename(after)
        else:
            copy_store(path, after)
            store.abandon()
        if number == 0 and len(plan.runs) > 1:
            early = copy_store(after, folder / "early")
        path = after
    _convert(plan, judge, path)
    # What a batch queue is stands there only; and old brokers set ends in RocksDB back for configured topics.
    if draw.random() < 0.5 or "inner" in plan.features or plan.has_database:
        write_config(plan, path)
    for left in folder.glob("run-*"):
        if left != path:
            shutil.rmtree(left, ignore_errors=True)
    return Base(plan, path, early)


def _stop(store: OpenStore, plan: Plan) -> None:
    """Stop cleanly. A 5.5.1 may end in the RocksDB library then, in a compaction; it is started and stopped again."""
    for _ in range(STOPS):
        try:
            store.shutdown()
        except JudgeError as trouble:
            if ROCKSDB not in (plan.queues_written, plan.queues_in) or "died in shutdown" not in str(trouble):
                raise
            store = store.again()
        else:
            return
    raise JudgeError(f"{plan}: no clean stop")


def _convert(plan: Plan, judge: Judge, path: Path) -> None:
    """Bring the queues to the other side, as a person does before the broker is set to it; all is served as before."""
    if plan.queues_in == plan.queues_written:
        return
    before = _served(plan, judge, path, plan.queues_written)
    conf = path.parent / "written.conf"
    conf.write_text(plan.conf_of(plan.queues_written))
    options = ("--queues", plan.queues_in, "--broker-version", plan.version, "--broker-conf", conf, "--yes")
    stopped = path.rename(path.with_name("stopped"))
    copy_store(stopped, path)  # of a stopped store a broker may have files mapped until it collects garbage
    shutil.rmtree(stopped)
    answer = rmqtool("convert", path, *options)
    assert answer.code == 0, (plan, answer.err, answer.out)
    shutil.rmtree(path / ".rmqtool")
    after = _served(plan, judge, path, plan.queues_in)
    assert after == before, (plan, sorted(before.items() ^ after.items())[:20])


def _served(plan: Plan, judge: Judge, path: Path, queues: str) -> dict[tuple[str, int, int], int]:
    copy = copy_store(path, path.parent / f"asked-{queues}")  # the first broker may still stop
    store = judge.open(copy, plan.config_of(queues), plan.topic_settings)
    assert store.serving, (plan, queues, store.opened)
    served = served_of(settled_read(store, plan))
    store.abandon()
    shutil.rmtree(copy, ignore_errors=True)
    return served


def settled_read(store: OpenStore, plan: Plan, queues: Iterable[tuple[str, int]] = ()) -> dict[str, Any]:
    """What a broker serves once nothing changes by itself.

    After a start it enters records into queues in RocksDB in groups, by a thread of its own, and where a topic was used
    again, those of its earlier generation first.
    """
    if not plan.has_database:
        return store.read(brief=True, queues=queues)
    named = list(queues)
    with suppress(JudgeError):  # some never come to the end of a damaged log
        store.wait_dispatched()
    read = store.read(brief=True, queues=named)
    for _ in range(SETTLES):
        time.sleep(SETTLE_S)
        before, read = read, store.read(brief=True, queues=named)
        if before["queues"] == read["queues"]:
            break
    return read


def _put(store: OpenStore, messages: list[dict[str, Any]], *, dispatched: bool) -> None:
    if not dispatched:
        store.stop_dispatch()
        store.put(*messages)
        return
    for at in range(0, len(messages), PUT_TOGETHER):
        answers = store.put(*messages[at : at + PUT_TOGETHER])
        troubles = [answer for answer in answers if "trouble" in answer]
        assert not troubles, troubles
        store.wait_dispatched()
        time.sleep(0.002)


def write_config(plan: Plan, path: Path) -> None:
    """The files that a whole broker keeps beside its store, as far as a store alone does not write them."""
    config = path / "config"
    config.mkdir(exist_ok=True)
    named = {
        topic: {"topicName": topic, "readQueueNums": 8, "writeQueueNums": 8, "perm": 6, **settings}
        for topic, settings in plan.topic_settings.items()
    }
    topics = {"dataVersion": {"counter": 3, "timestamp": 1_700_000_000_000}, "topicConfigTable": named}
    offsets = {"offsetTable": {f"{topic}@group": {"0": 1} for topic in plan.topics}}
    for name, content in (("topics.json", topics), ("consumerOffset.json", offsets)):
        (config / name).write_text(json.dumps(content))
        (config / f"{name}.bak").write_text(json.dumps(content))
