"""A life carried out: real brokers of the versions that its plan names, one after another on one store."""

import random
import shutil
import subprocess
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from subprocess import CalledProcessError
from typing import Any

from tests.broker.broker import Judge, OpenStore
from tests.broker.files import copy_store
from tests.broker.program import JudgeError
from tests.judge.bases import CLEAN, FILE, KILLED, ROCKSDB, SINCE, STORE_TYPE, Base, Plan, numbers_of
from tests.judge.lives import plan as acts
from tests.judge.lives.broker_config import GROUP, QUEUES, BrokerConfig
from tests.judge.lives.plan import Act, LifePlan
from tests.judge.messages import BATCHED, LONG_TOPICS, Sender

JudgeOf = Callable[[str], Judge]
FIVE = (5, 0, 0)
PUT_TOGETHER = 10
COPY_BEGINS_AFTER_S = 0.01
LAST_KILL_S = 0.2


@dataclass
class Life:
    """A store while it lives, and what is known of it.

    Attributes:
        path: where the store is now.
        deleted: of each topic that was deleted, where the log ended then: its records before are a deleted topic's.
        restored: the same of topics that an older configuration, which a person put back, still has.
        unrouted: topics that an older configuration, which a person put back, did not have yet.
        ends: queue offset that comes next, by topic and queue.
        rough: what happened that leaves more than a clean stop or a kill does.
        is_cut: whether a start ended the log earlier; what newer versions read after that end is old.
        is_renumbered: whether a broker gave queue offsets again without a deletion, as 4.4.0 does where the files of
            its queues have another size than it is set to: to whom messages before that belong, nothing tells.
        runs: messages of each run, which is not counted, and how it ended.
        versions: that ran, in order.
    """

    plan: LifePlan
    judge_of: JudgeOf
    folder: Path
    path: Path
    version: str
    config: dict[str, Any]
    asked: str
    broker: BrokerConfig = field(default_factory=BrokerConfig)
    deleted: dict[str, int] = field(default_factory=dict)
    restored: dict[str, int] = field(default_factory=dict)
    unrouted: set[str] = field(default_factory=set)
    ends: dict[tuple[str, int], int] = field(default_factory=dict)
    log_end: int = 0
    is_cut: bool = False
    is_renumbered: bool = False
    clock_ms: int = 0
    rough: list[str] = field(default_factory=list)
    runs: list[tuple[int, str]] = field(default_factory=list)
    versions: list[str] = field(default_factory=list)
    copies: list[Path] = field(default_factory=list)
    told: list[str] = field(default_factory=list)
    _open: OpenStore | None = None
    _before: dict[str, Any] = field(default_factory=dict)
    _places: int = 0

    @property
    def is_five(self) -> bool:
        return numbers_of(self.version) >= FIVE

    @property
    def topic_settings(self) -> dict[str, Any]:
        attributes = self.broker.attributes
        return {
            topic: {"readQueueNums": QUEUES, "writeQueueNums": QUEUES, "attributes": attributes.get(topic, {})}
            for topic in self.broker.kept(is_five=self.is_five)
        }

    def has_route(self, topic: str) -> bool:
        """Whether clients find the topic's queues: unless it was deleted, and not made again."""
        return topic in self.broker.topics or topic not in {*self.deleted, *self.unrouted}

    @property
    def features(self) -> frozenset[str]:
        """Kinds of messages: batches of a topic that still has its attribute, the others as planned."""
        return self.plan.features if self.broker.attributes.get(BATCHED) else self.plan.features - {"inner"}

    def place(self, name: str) -> Path:
        """A folder that nothing has used."""
        self._places += 1
        return self.folder / f"{name}-{self._places}"

    def base(self) -> Base:
        """The store that came out, as faults and checks know one."""
        on = ROCKSDB if self.config.get("storeType") == STORE_TYPE["storeType"] else FILE
        topics = tuple(self.broker.topics)
        plan = Plan(self.plan.name, self.asked, self.features, self.config, topics, QUEUES, tuple(self.runs), on, on)
        own = [name for name in self.broker.kept(is_five=self.is_five) if name not in self.broker.topics]
        plan = replace(plan, own_topics=tuple(own))
        return Base(plan, self.path, self.copies[0] if self.copies else None)


def live(plan: LifePlan, judge_of: JudgeOf, folder: Path) -> Life:
    """Carry out all acts of a plan."""
    life = Life(plan, judge_of, folder, folder / "run-0", plan.version, dict(plan.config), plan.asked)
    draw = random.Random(f"messages {plan.name}")
    if "inner" in plan.features:
        life.broker.create(BATCHED, queue_type="BatchCQ")
    if "long" in plan.features:
        for topic in LONG_TOPICS:
            life.broker.create(topic)
    for act in plan.acts:
        try:
            ACTS[act.name](life, act, draw)
        except EndOfLifeError as trouble:
            life.rough.append(f"the end before {act}: {trouble}")
            life.asked = life.version
            return life
        if act.end is not None and life._open is not None:
            stop(life, act.end)
    if BATCHED in life.broker.topics and numbers_of(life.asked) < FIVE:
        life.rough.append(f"batch topics under {life.asked}")
    if life.config != life._before:  # a person tries new settings before they count on them
        with suppress(EndOfLifeError):
            _running(life)
            stop(life, CLEAN)
    return life


class EndOfLifeError(Exception):
    """No broker starts any more."""


def _running(life: Life) -> OpenStore:
    """The store in the hands of a broker: the one that runs, or one that is started now.

    Where new settings keep it from starting, a person takes them back.
    """
    if life._open is not None:
        return life._open
    store = None if _ignores_files(life) else _start(life)
    if store is None or not store.serving:
        if store is not None:
            refused = copy_store(life.path, life.place("refused"))  # before the process tidies up
            store.abandon()
            life.path = refused
        life.rough.append("refused")
        life.told.append(f"{life.version} does not start with {life.config}")
        life.config = dict(life._before)
        store = _start(life)
    if not store.serving:
        store.abandon()
        raise EndOfLifeError(f"{life.version} does not start: {store.opened['loadTrouble']}")
    life._open, life._before = store, dict(life.config)
    life.versions.append(life.version)
    log_end = store.opened["afterLoad"]["offsets"]["max"]
    if log_end < life.log_end:
        life.rough.append(f"{life.version} cut the log from {life.log_end} to {log_end}")
        life.is_cut = True
        life.deleted = {topic: min(at, log_end) for topic, at in life.deleted.items()}
    life.log_end = log_end
    if BATCHED in life.broker.topics and not life.is_five:
        life.rough.append(f"batch topics under {life.version}")
    life.broker.write_topics(life.path, is_five=life.is_five)
    life.broker.write_groups(life.path)
    life.broker.write_offsets(life.path)
    return store


def _ignores_files(life: Life) -> bool:
    """Whether a person sees that this would go wrong: 4.4.0 leaves out files that have another length."""
    folders = [life.path / name for name in str(life.config.get("storePathCommitLog", "commitlog")).split(",")]
    of_log = {file.stat().st_size for folder in folders for file in folder.glob("[0-9]*")}
    of_queues = {file.stat().st_size for file in life.path.glob("consumequeue/*/*/[0-9]*")}
    is_other = of_log - {life.config["mappedFileSizeCommitLog"]} or of_queues - {
        life.config["mappedFileSizeConsumeQueue"]
    }
    return life.version == "4.4.0" and bool(is_other)


def _start(life: Life) -> OpenStore:
    judge = life.judge_of(life.version)
    return judge.open(life.path, life.config, life.topic_settings, clock_offset_ms=life.clock_ms)


def stop(life: Life, end: str) -> None:
    store = life._open
    assert store is not None
    life._open = None
    is_clean = end == acts.CLEAN
    if is_clean:
        life.broker.write_offsets(life.path)
        if life.is_five:
            life.broker.close(life.path)
        try:
            store.shutdown()
        except JudgeError as trouble:
            if "died in shutdown" not in str(trouble):
                raise
            is_clean = False
    else:
        after = copy_store(life.path, life.place("killed"))
        store.abandon()
        life.path = after
    life.runs.append((0, CLEAN if is_clean else KILLED))
    life.copies.append(copy_store(life.path, life.place("older")))


def _write(life: Life, act: Act, draw: random.Random) -> None:
    store = _running(life)
    for topic in act.values["topics"]:
        _created(life, topic)
    if act.end == acts.KILLED_BEFORE_DISPATCH:
        store.stop_dispatch()
    elif act.end == acts.KILLED_BEFORE_INDEX:
        store.stop_index()
    if act.end == acts.KILLED_AT_ANY_TIME:
        _put_until_killed(life, store, act, draw)
    else:
        _put(life, store, act, draw, dispatched=act.end != acts.KILLED_BEFORE_DISPATCH)


def _put_until_killed(life: Life, store: OpenStore, act: Act, draw: random.Random) -> None:
    """The broker's process is killed at some moment; its files stay as they are then."""
    killing = threading.Timer(draw.random() * LAST_KILL_S, store.crash)
    killing.start()
    with suppress(JudgeError):
        _put(life, store, act, draw)
    killing.join()
    store.kill()
    life._open = None
    life.runs.append((0, KILLED))


def _put(life: Life, store: OpenStore, act: Act, draw: random.Random, *, dispatched: bool = True) -> None:
    features = {name for name in life.features if SINCE.get(name, FIRST) <= numbers_of(life.version)}
    sender = Sender(draw, frozenset(features), tuple(act.values["topics"]), QUEUES)
    messages = sender.messages(act.values["count"])
    for at in range(0, len(messages), PUT_TOGETHER):
        for answer in store.put(*messages[at : at + PUT_TOGETHER]):
            assert answer.get("status") == "PUT_OK", (life.plan, answer)
            topic = answer["topic"]
            name, queue_offset = (topic, answer["queueId"]), answer["queueOffset"]
            life.is_renumbered |= queue_offset < life.ends.get(name, 0)
            life.ends[name] = queue_offset + 1
            if topic in life.restored:
                life.deleted[topic] = life.restored.pop(topic)
            life.log_end = max(life.log_end, answer["physicalOffset"] + answer["size"])
        if dispatched:
            store.wait_dispatched()
            time.sleep(0.002)


FIRST = (0, 0, 0)


def _created(life: Life, topic: str) -> None:
    if topic not in life.broker.topics:
        life.broker.create(topic)
        life.broker.write_topics(life.path, is_five=life.is_five)
        life.broker.write_groups(life.path)
        life.broker.write_offsets(life.path)


def _create(life: Life, act: Act, draw: random.Random) -> None:
    _running(life)
    _created(life, act.values["topic"])


def _delete(life: Life, act: Act, draw: random.Random) -> None:
    store = _running(life)
    topic = act.values["topic"]
    store.wait_dispatched()
    _forget(life, topic)
    store.delete_topic(topic, life.broker.kept(is_five=life.is_five))


def _forget(life: Life, topic: str) -> None:
    """What a broker does first: its configuration has the topic no more."""
    life.broker.delete(topic, with_offsets=life.is_five)
    life.broker.write_topics(life.path, is_five=life.is_five)
    life.deleted[topic] = life.log_end
    life.ends = {name: end for name, end in life.ends.items() if name[0] != topic}


def _delete_half(life: Life, act: Act, draw: random.Random) -> None:
    """A broker that is killed in a deletion."""
    store = _running(life)
    topic = act.values["topic"]
    store.wait_dispatched()
    _forget(life, topic)
    life.rough.append("half a deletion")
    half = copy_store(life.path, life.place("half"))
    folder = half / "consumequeue" / topic
    if act.values["after"] == "one queue" and folder.is_dir():
        shutil.rmtree(draw.choice(sorted(folder.iterdir())))
    _replaced(life, store, half)


def _replaced(life: Life, store: OpenStore, path: Path) -> None:
    """Go on with a copy that was made while the broker ran."""
    store.abandon()
    life.path = path
    life._open = None
    life.runs.append((0, KILLED))


def _expire(life: Life, act: Act, draw: random.Random) -> None:
    store = _running(life)
    store.wait_dispatched()
    store.expire(act.values["files"])


def _progress(life: Life, act: Act, draw: random.Random) -> None:
    _running(life)
    topic = act.values["topic"]
    queues = {queue: int(end * act.values["share"]) for (name, queue), end in life.ends.items() if name == topic}
    if queues:
        life.broker.offsets[f"{topic}@{GROUP}"] = dict(sorted(queues.items()))
        life.broker.write_groups(life.path)
        life.broker.write_offsets(life.path)


def _copy(life: Life, act: Act, draw: random.Random) -> None:
    """Copy file by file while messages come in; the copy is the store from now on."""
    store = _running(life)
    for topic in act.values["topics"]:
        _created(life, topic)
    copy = life.place("copied")
    copying = threading.Thread(target=lambda: (time.sleep(COPY_BEGINS_AFTER_S), _copy_loosely(life.path, copy)))
    copying.start()
    _put(life, store, act, draw)
    copying.join()
    life.rough.append("copied while it ran")
    _replaced(life, store, copy)


def _fill(life: Life, act: Act, draw: random.Random) -> None:
    """Messages until the disk is full; then the broker is killed, and the store comes to a larger disk."""
    if life._open is not None:
        stop(life, KILLED)
    disk = life.place("disk")
    disk.mkdir()
    used = sum(file.stat().st_blocks for file in life.path.rglob("*")) // 2
    command = ["mount", "-t", "tmpfs", "-o", f"size={used + act.values['room']}k", "tmpfs", str(disk)]
    if subprocess.run(command, capture_output=True, check=False).returncode != 0:
        life.rough.append("no disk to fill")
        return
    before = life.path
    try:
        life.path = copy_store(life.path, disk / "store")
        store = _running(life)
        with suppress(JudgeError, AssertionError):
            _put(life, store, act, draw)
        _replaced(life, store, copy_store(life.path, life.place("moved")))
        store.kill()
    except (EndOfLifeError, CalledProcessError, JudgeError):
        life.path, life._open = before, None
    finally:
        subprocess.run(["umount", "-l", str(disk)], check=True)
    life.rough.append("the disk was full")


def _copy_loosely(source: Path, target: Path) -> None:
    """As cp does over files that come and go."""
    for file in sorted(source.rglob("*")):
        place = target / file.relative_to(source)
        if file.is_dir():
            place.mkdir(parents=True, exist_ok=True)
            continue
        try:
            place.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(file, place)
        except FileNotFoundError:
            continue


def _version(life: Life, act: Act, draw: random.Random) -> None:
    life.version = act.values["to"]


def _settings(life: Life, act: Act, draw: random.Random) -> None:
    life.config |= act.values["change"]
    if "storeType" in act.values["change"]:
        life.rough.append("queues moved without convert")
    if "maxIndexNum" in act.values["change"] and any((life.path / "index").glob("[0-9]*")):
        life.rough.append("index files of other sizes")
    if life.config.get("storeType") == "default":
        del life.config["storeType"]
    for name in str(act.values["change"].get("storePathCommitLog", "")).split(","):
        (life.path / name).mkdir(exist_ok=True)
    life.told.append(f"set {act.values['change']}")


def _clock(life: Life, act: Act, draw: random.Random) -> None:
    life.clock_ms += act.values["by"]
    life.broker.clock_ms = life.clock_ms


def _restore(life: Life, act: Act, draw: random.Random) -> None:
    """Some files from an older copy: a person thought that they are better."""
    if not life.copies:
        return
    older = life.copies[int(act.values["at"] * len(life.copies))]
    what = act.values["what"]
    places = {"topic": f"consumequeue/{draw.choice(sorted(life.broker.topics))}"}
    source, target = older / places.get(what, what), life.path / places.get(what, what)
    if not source.exists():
        return
    life.rough.append(f"restored {what}")
    if source.is_dir():
        shutil.rmtree(target, ignore_errors=True)
        copy_store(source, target)
    else:
        shutil.copy2(source, target)
    if what == "config":
        before = life.broker.topics
        life.broker.load(life.path)
        life.unrouted |= {*before} - {*life.broker.topics}
        # What is configured counts as there: nothing shows that somebody removed it, before it is used again.
        for topic in life.deleted.keys() & {*life.broker.topics}:
            life.restored[topic] = life.deleted.pop(topic)
        for topic in life.restored.keys() - {*life.broker.topics}:
            life.deleted[topic] = life.restored.pop(topic)


ACTS: dict[str, Callable[[Life, Act, random.Random], None]] = {
    acts.WRITES: _write,
    acts.USES_AGAIN: _write,
    acts.CREATES: _create,
    acts.DELETES: _delete,
    acts.DELETES_HALF: _delete_half,
    acts.EXPIRES: _expire,
    acts.PROGRESSES: _progress,
    acts.COPIES: _copy,
    acts.FILLS: _fill,
    acts.CHANGES_VERSION: _version,
    acts.CHANGES_SETTINGS: _settings,
    acts.SETS_CLOCK: _clock,
    acts.RESTORES: _restore,
}
