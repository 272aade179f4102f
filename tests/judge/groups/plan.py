"""What a case of a group is made of; all of it follows from its seed and number."""

from __future__ import annotations

import random
from dataclasses import dataclass

from tests.judge.bases import ALWAYS, CLEAN, KILLED, KILLED_BEFORE_DISPATCH, SINCE, Plan, numbers_of

VERSIONS = ("4.9.7", "5.1.4", "5.3.1", "5.3.3", "5.4.0", "5.5.0", "5.5.1")
"""Of 4.9.8 the store alone was published, without what DLedger writes its messages to the log with."""
KILLED_COMMITTED = "killed once the group's checkpoint says what is committed"
ENDS = (CLEAN, CLEAN, KILLED, KILLED_COMMITTED, KILLED_COMMITTED, KILLED_BEFORE_DISPATCH)
KINDS = ("v6", "light", "long")
"""Features of plain bases that a store of DLedger takes too."""
MEMBERS = 3


@dataclass(frozen=True)
class GroupPlan:
    """A member of a group, and how its store came about.

    Attributes:
        base: sizes, messages, runs and the version that writes.
        asked: the version that starts on the store, and that rmqtool is asked about.
        plain_runs: runs before DLedger was turned on.
        directories: of the entries, where there are several.
        members: of the group that wrote it; three, of which one is away at times, have elections.
        is_told: whether rmqtool gets the broker's properties file, though it needs none.
    """

    base: Plan
    asked: str
    plain_runs: int
    directories: tuple[str, ...]
    members: int
    is_told: bool

    @property
    def data_directories(self) -> tuple[str, ...]:
        return self.directories or (f"{self.folder}/data",)

    @property
    def member(self) -> str:
        return "n1" if self.members > 1 else "n0"

    @property
    def folder(self) -> str:
        return f"dledger-{self.member}"


def group_plan(seed: int, number: int) -> GroupPlan:
    """The plan of a case."""
    draw = random.Random(f"dledger {seed} {number}")
    version = draw.choice(VERSIONS)
    later = VERSIONS[VERSIONS.index(version) + 1 :]
    asked = draw.choice(later) if later and draw.random() < 0.2 else version
    there = [name for name in KINDS if SINCE.get(name, (0,)) <= numbers_of(version)]
    features = {name for name in ALWAYS if draw.random() < 0.5} | {name for name in there if draw.random() < 0.15}
    if draw.random() < 0.4:
        features.add("transactions")
    slots, entries = draw.choice(((100, 200), (50, 120), (1000, 4000)))
    config: dict[str, object] = {
        "mappedFileSizeCommitLog": draw.choice((65536, 65536, 32768, 131072, 50000)),
        "mappedFileSizeConsumeQueue": draw.choice((600, 600, 400, 2000, 20000)),
        "maxHashSlotNum": slots,
        "maxIndexNum": entries,
    }
    if "light" in features:
        config |= {"enableLmq": True, "enableMultiDispatch": True}
    members = MEMBERS if draw.random() < 0.1 else 1
    directories = ("d0", "d1", "d2")[: draw.choice((2, 3))] if members == 1 and draw.random() < 0.2 else ()
    runs = tuple((draw.randrange(20, 110), draw.choice(ENDS)) for _ in range(draw.choice((1, 1, 2))))
    topics = tuple(draw.sample(("Orders", "Payments", "T", "Audit-2"), draw.randrange(1, 4)))
    base = Plan(f"dledger-{seed}-{number}", version, frozenset(features), config, topics, draw.randrange(1, 4), runs)
    plain_runs = int(members == 1 and draw.random() < 0.4)
    return GroupPlan(base, asked, plain_runs, directories, members, draw.random() < 0.3)
