"""A life: what people and brokers do to a store, three to eight acts that follow from a seed."""

import random
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from tests.judge.bases import NOT_IN_ROCKSDB, ROCKSDB_SINCE, STORE_TYPE, VERSIONS, numbers_of

CLEAN, KILLED, KILLED_BEFORE_DISPATCH = "clean", "killed", "killed-before-dispatch"
KILLED_BEFORE_INDEX, KILLED_AT_ANY_TIME = "killed-before-index", "killed-at-any-time"
WRITES, CREATES, DELETES, USES_AGAIN = "write", "create", "delete", "use-again"
EXPIRES, PROGRESSES = "expire", "progress"
DELETES_HALF, COPIES, FILLS = "delete-half", "copy", "fill-disk"
CHANGES_VERSION, CHANGES_SETTINGS, SETS_CLOCK, RESTORES = "version", "settings", "clock", "restore"
RUNNING = (WRITES, CREATES, DELETES, USES_AGAIN, EXPIRES, PROGRESSES, DELETES_HALF, COPIES, FILLS)
"""Acts for which a broker runs; the others happen between two runs."""
NAMES = ("Orders", "Payments", "T", "Audit-2", "%RETRY%shop", "Stock_3")
LOG_SIZES, QUEUE_SIZES = (16384, 32768, 65536), (400, 600, 2000)
INDEX_SIZES = ((100, 400), (100, 1000), (1000, 4000))
"""Few files are filled within a millisecond, after which brokers give two one name and spoil both."""
LEVELS = ("1h 2h 3h", "30m 1h 2h 3h 4h")
CLOCKS_MS = (-25_000, -3_000, -900, -1_800_000, -86_400_000, 5_000, 3_600_000, 3 * 86_400_000)
FEATURES = {"batch": 0.3, "delay": 0.3, "flagged": 0.3, "packed": 0.3, "half": 0.3, "v6": 0.3,
            "long": 0.05, "light": 0.08, "inner": 0.08}  # fmt: skip
"""Kinds of messages, and how many of the lives have each."""
LIGHT = {"enableLmq": True, "enableMultiDispatch": True}
PATHS_SINCE = (4, 9, 2)
ROUGH = 0.35
"""How many lives may have what leaves more than a broker does: copies, older files, a full disk."""
FAULTS = (0, 0, 0, 0, 0, 1, 1, 2)


@dataclass(frozen=True)
class Act:
    """One act; `end` is how the run ends after it, None where the broker goes on or does not run."""

    name: str
    values: dict[str, Any]
    end: str | None = None

    def __str__(self) -> str:
        words = [self.name, *(f"{value}" for value in self.values.values())]
        return " ".join(words) + (f" ({self.end})" if self.end else "")


@dataclass(frozen=True)
class LifePlan:
    """All of a life that follows from its seed.

    Attributes:
        asked: the version whose broker is asked in the end.
        told: whether rmqtool is given the broker's settings.
        faults: how many faults follow the acts.
    """

    name: str
    version: str
    config: dict[str, Any]
    features: frozenset[str]
    acts: tuple[Act, ...]
    asked: str
    told: bool
    faults: int

    def __str__(self) -> str:
        settings = " ".join(f"{name}={value}" for name, value in self.config.items())
        return f"{self.version} [{settings}]: {'; '.join(map(str, self.acts))}; asked {self.asked}"


@dataclass
class _State:
    """What a life has come to while it is planned."""

    draw: random.Random
    version: str
    config: dict[str, Any]
    topics: list[str] = field(default_factory=list)
    deleted: list[str] = field(default_factory=list)

    @property
    def is_rocksdb(self) -> bool:
        return self.config.get("storeType") == STORE_TYPE["storeType"]


def plan_of(seed: int, number: int) -> LifePlan:
    """The plan of one life."""
    name = f"life-{seed}-{number}"
    draw = random.Random(name)
    version = draw.choice(VERSIONS)
    state = _State(draw, version, _settings(draw, version))
    features = frozenset(feature for feature, share in FEATURES.items() if draw.random() < share)
    if state.is_rocksdb:
        features -= NOT_IN_ROCKSDB
    if "light" in features:
        state.config |= LIGHT
    config = dict(state.config)
    ways = _WAYS if draw.random() < ROUGH else _GENTLE
    acts = [_write(state)]
    wanted = draw.randrange(3, 9)
    while len(acts) < wanted:
        act = draw.choice(ways)(state)
        if act is None:
            continue
        if act.name not in RUNNING and acts[-1].end is None and acts[-1].name in RUNNING:
            acts[-1] = _ended(state, acts[-1])
        acts.append(act)
        if act.name in RUNNING and act.end is None and draw.random() < 0.5:
            acts[-1] = _ended(state, act)
    if acts[-1].end is None and acts[-1].name in RUNNING:
        acts[-1] = _ended(state, acts[-1])
    asked = state.version
    if draw.random() < 0.15 and not state.is_rocksdb:
        asked = draw.choice(VERSIONS[VERSIONS.index(state.version) :])
    return LifePlan(name, version, config, features, tuple(acts), asked, draw.random() < 0.75, draw.choice(FAULTS))


def _settings(draw: random.Random, version: str) -> dict[str, Any]:
    config: dict[str, Any] = {
        "mappedFileSizeCommitLog": draw.choice(LOG_SIZES),
        "mappedFileSizeConsumeQueue": draw.choice(QUEUE_SIZES),
    }
    config["maxHashSlotNum"], config["maxIndexNum"] = draw.choice(INDEX_SIZES)
    if numbers_of(version) >= ROCKSDB_SINCE and draw.random() < 0.12:
        config |= STORE_TYPE
    return config


def _ended(state: _State, act: Act) -> Act:
    ends = [CLEAN] * 5 + [KILLED] * 3
    if act.name in (WRITES, USES_AGAIN):
        ends += [KILLED_BEFORE_DISPATCH, KILLED_BEFORE_INDEX]
    if act.name == WRITES and state.draw.random() < 0.15:
        ends = [KILLED_AT_ANY_TIME]
    return Act(act.name, act.values, state.draw.choice(ends))


def _write(state: _State) -> Act:
    while len(state.topics) < 2:
        _create(state)
    return Act(WRITES, {"count": state.draw.randrange(15, 90), "topics": list(state.topics)})


def _create(state: _State) -> Act | None:
    free = [name for name in NAMES if name not in state.topics and name not in state.deleted]
    if not free:
        return None
    topic = state.draw.choice(free)
    state.topics.append(topic)
    return Act(CREATES, {"topic": topic})


def _delete(state: _State) -> Act | None:
    if len(state.topics) < 2:
        return None
    topic = state.draw.choice(state.topics)
    state.topics.remove(topic)
    state.deleted.append(topic)
    return Act(DELETES, {"topic": topic})


def _delete_half(state: _State) -> Act | None:
    act = _delete(state)
    return act and Act(DELETES_HALF, {**act.values, "after": state.draw.choice(("configuration", "one queue"))}, KILLED)


def _use_again(state: _State) -> Act | None:
    if not state.deleted:
        return None
    topic = state.draw.choice(state.deleted)
    state.deleted.remove(topic)
    state.topics.append(topic)
    return Act(USES_AGAIN, {"count": state.draw.randrange(3, 40), "topics": [topic]})


def _version(state: _State) -> Act | None:
    others = [version for version in VERSIONS if version != state.version]
    if state.is_rocksdb:
        others = [version for version in others if numbers_of(version) >= ROCKSDB_SINCE]
    if "," in str(state.config.get("storePathCommitLog")):
        others = [version for version in others if numbers_of(version) >= PATHS_SINCE]
    state.version = state.draw.choice(others)
    return Act(CHANGES_VERSION, {"to": state.version})


def _settings_changed(state: _State) -> Act | None:
    draw = state.draw
    way = draw.choice(("log", "queues", "index", "paths", "levels", "type"))
    change: dict[str, Any] = {}
    if way == "log":
        change = {"mappedFileSizeCommitLog": draw.choice(LOG_SIZES)}
    elif way == "queues":
        change = {"mappedFileSizeConsumeQueue": draw.choice(QUEUE_SIZES)}
    elif way == "index":
        change["maxHashSlotNum"], change["maxIndexNum"] = draw.choice(INDEX_SIZES)
    elif way == "levels":
        change = {"messageDelayLevel": draw.choice(LEVELS)}
    elif way == "paths" and numbers_of(state.version) >= PATHS_SINCE and "storePathCommitLog" not in state.config:
        change = {"storePathCommitLog": "commitlog,commitlog-b"}
    elif way == "type" and "enableLmq" not in state.config and numbers_of(state.version) >= ROCKSDB_SINCE:
        change = {"storeType": "default" if state.is_rocksdb else STORE_TYPE["storeType"]}
    if not change or all(state.config.get(name) == value for name, value in change.items()):
        return None
    state.config |= change
    return Act(CHANGES_SETTINGS, {"change": change})


def _clock(state: _State) -> Act:
    return Act(SETS_CLOCK, {"by": state.draw.choice(CLOCKS_MS)})


def _expire(state: _State) -> Act:
    return Act(EXPIRES, {"files": state.draw.choice((1, 1, 2, 5))})


def _restore(state: _State) -> Act:
    what = state.draw.choice(("checkpoint", "config", "index", "consumequeue", "topic"))
    return Act(RESTORES, {"what": what, "at": state.draw.random()})


def _copy(state: _State) -> Act:
    return Act(COPIES, {"count": state.draw.randrange(30, 90), "topics": list(state.topics)}, KILLED)


def _fill(state: _State) -> Act:
    room = state.draw.choice((8, 16, 24, 40, 60))
    return Act(FILLS, {"room": room, "count": 90, "topics": list(state.topics)}, KILLED)


def _progress(state: _State) -> Act:
    return Act(PROGRESSES, {"topic": state.draw.choice(state.topics), "share": round(state.draw.random(), 2)})


_GENTLE: tuple[Callable[[_State], Act | None], ...] = (
    *(_write,) * 6, *(_delete,) * 4, *(_use_again,) * 5, *(_version,) * 4, *(_expire,) * 2, *(_progress,) * 2,
    _create, *(_settings_changed,) * 2, _clock, _clock,
)  # fmt: skip
_WAYS = (*_GENTLE, *(_restore, _copy, _delete_half, _fill) * 2)
