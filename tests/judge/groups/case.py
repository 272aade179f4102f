"""A case of a group: a member's store, what a broker serves of it with and without faults, and what rmqtool is told."""

from __future__ import annotations

import json
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from tests.broker.broker import Judge, setting_texts
from tests.commands.transcripts import rmqtool
from tests.judge.bases import Base, Truth
from tests.judge.case import Disagreement
from tests.judge.check_forecast import LIGHT
from tests.judge.groups.answers import Served, is_of
from tests.judge.groups.plan import GroupPlan
from tests.judge.groups.writing import Written, settings_of
from tests.judge.target import Fault

INTERNAL_ERROR, ASKS = 1, 5
SETTINGS_ASKED = ("--broker-conf", "--index-slots")


@dataclass
class GroupAnswer:
    """What a command said."""

    code: int
    json: dict[str, Any]
    err: str


@dataclass
class GroupCase:
    """A case, named dledger-SEED-NUMBER; all of it follows from the name, but for the broker's clock.

    Attributes:
        whole: what a broker of the asked version serves of the undamaged store.
        now: what it serves of the damaged one; None where it does not start.
        intact: physical offsets of records that no fault changed.
        live: physical offsets that a queue should lead to: earlier starts may have dropped others.
        unqueued: those of records that no queue gets.
    """

    plan: GroupPlan
    judge: Judge
    folder: Path
    written: Written
    base: Base
    truth: Truth
    store: Path
    faults: list[Fault] = field(default_factory=list)
    whole: Served | None = None
    now: Served | None = None
    intact: set[int] = field(default_factory=set)
    live: set[int] = field(default_factory=set)
    unqueued: set[int] = field(default_factory=set)
    told: list[object] = field(default_factory=list)
    disagreements: list[Disagreement] = field(default_factory=list)

    @property
    def name(self) -> str:
        return self.plan.base.name

    @property
    def floor(self) -> Served:
        """What of that no repair may take away: messages that are served where they themselves say."""
        assert self.now is not None
        own = {
            place: at
            for place, at in self.now.offsets.items()
            if place in self.now.contents and (place[0].startswith(LIGHT) or is_of(self.now.contents[place], place))
        }
        contents = {place: message for place, message in self.now.contents.items() if place in own}
        return replace(self.now, offsets=own, contents=contents)

    @property
    def summary(self) -> list[str]:
        """What to show of a case that disagrees."""
        ends = ", ".join(f"{count} {end}" for count, end in self.plan.base.runs)
        more = " ".join(("plain log",) * self.plan.plain_runs + self.plan.directories)
        how = f"{self.plan.base.version} asked {self.plan.asked}, {self.plan.members} members: {ends} {more}"
        return [how, *(f"{fault.name} {fault.file} {fault.what}{' (silent)' * fault.silent}" for fault in self.faults)]

    def differs(self, signature: str, text: object) -> None:
        self.disagreements.append(Disagreement(signature, str(text)[:1500]))

    def ask(self, command: str, store: Path, *options: object) -> GroupAnswer:
        """Run a command; where it asks for the broker's settings a person gives them, from then on."""
        arguments = (*options, "--format", "json", "--broker-version", self.plan.asked)
        ran = rmqtool(command, store, *self.told, *arguments)
        asks = any(name in ran.err for name in SETTINGS_ASKED) or '"index.unknown-slot-count"' in ran.out
        if asks and ran.code != 0 and not self.told:
            self.tell()
            return self.ask(command, store, *options)
        if ran.code == INTERNAL_ERROR:
            self.differs(f"{command}: internal error", ran.err[-1500:])
        return GroupAnswer(ran.code, json.loads(ran.out) if ran.out.startswith("{") else {}, ran.err)

    def tell(self) -> None:
        """Give rmqtool the broker's properties file from now on."""
        settings = {**settings_of(self.plan), "storePathRootDir": self.store}
        if self.plan.directories:
            settings["storePathDLedgerCommitLog"] = ",".join(f"{self.store}/{name}" for name in self.plan.directories)
        conf = self.folder / "broker.conf"
        conf.write_text("".join(f"{name}={text}\n" for name, text in setting_texts(settings).items()))
        self.told = ["--broker-conf", conf]
