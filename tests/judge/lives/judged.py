"""What is judged of a life: the forecast, the floor, what comes back unasked, the advice, undo, and new messages."""

import hashlib
import random
import re
import shlex
import shutil
from collections import Counter
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from rmqtool.formats.rocksdb.queue import unit_key
from tests.broker.broker import Judge
from tests.broker.files import changes, copy_store, snapshot
from tests.broker.program import JudgeError
from tests.judge.bases import Base, Truth, numbers_of, settled_read, whole_served
from tests.judge.case import CHANGES, Case
from tests.judge.check_forecast import LIGHT, check_forecast, of_the_store
from tests.judge.check_repair import check_goes_on, check_undo, repair_count
from tests.judge.check_verify import LEFT_BY_RECOVERY, check_verify
from tests.judge.faults_rocksdb import content_of
from tests.judge.intact import log_content
from tests.judge.lives.life import Life
from tests.judge.lives.plan import KILLED_AT_ANY_TIME
from tests.judge.messages import BATCHED
from tests.judge.target import UNIT, Fault, Target
from tests.judge.tool import Answer
from tests.store_state import store_state

Served = Mapping[tuple[str, int, int], int]
SYSTEM_FLAGS_AT = 36
NOTHING = hashlib.blake2b(digest_size=16).hexdigest()
"""Digest of a file of zeros, which a broker made in advance."""
NOT_QUEUED = (4, 12)
"""Prepared and rolled back messages of transactions: no queue has them."""
MOST_STEPS = 6
MOST_TRIES = 60
REPAIRS = ("recover", "rebuild", "salvage", "patch", "convert")
LONE = (("recover",), ("recover", "--full"), ("rebuild",), ("salvage",))
"""Commands that a person may type without being advised to."""
IS_HEALTHY = "C a healthy store has "


@dataclass
class LifeCase(Case):
    """A life that is judged.

    Attributes:
        floor: what the asked version serves of the store before any command.
        living: records of topics that are there, each with the place that it was given.
    """

    life: Life | None = None
    floor: Served = field(default_factory=dict)
    living: list[tuple[tuple[str, int, int], int]] | None = None

    @property
    def lacks_topics(self) -> bool:
        """Whether topics.json cannot tell any more which topics were deleted."""
        return any(fault.file == "config/topics.json" for fault in self.faults)

    @property
    def by_chance(self) -> set[str]:
        """Topics with two messages of one place, as one that is used again, whose queues in RocksDB a start fills.

        It enters both, and they have one key: from the same bytes 5.3.3 served the earlier message in one of three
        starts, and the later one in two.
        """
        if not self.base.plan.has_database:
            return set()
        dead = dead_records(self)
        removed = {(topic, queue_id) for at, topic, queue_id, _ in self.truth.places if dead.get(at) == topic}
        claims = Counter(row[1:] for row in self.truth.places)
        doubled = {topic for (topic, _, _), count in claims.items() if count > 1}
        return doubled | {name[0] for name, _ in self.owed if name[:2] in removed}

    @property
    def uncertain_losses(self) -> float:
        """How many messages more may count as lost: what somebody removed and consumers get all the same.

        Where an older version has ended the log at the first record that it does not read, its next start does so too,
        and nothing tells the two from each other.
        """
        assert self.life is not None
        if self.life.is_cut or self.life.is_renumbered or self.by_chance:
            return float("inf")
        seen, dead = seen_dead(self).keys() - set(self.truth.served.values()), dead_records(self)
        return sum(
            1 for at, topic in dead.items() if at not in seen and (self.lacks_topics or self.life.has_route(topic))
        )

    @property
    def owed(self) -> list[tuple[tuple[str, int, int], int]]:
        if self.living is None:
            self.living = _owed(self)
        return self.living

    def expected(self) -> dict[tuple[str, int, int], int]:
        return dict(self.floor)

    def takes(self, topic: str) -> bool:
        return super().takes(topic) and self.life is not None and self.life.has_route(topic)


def judge_life(life: Life, folder: Path) -> LifeCase:
    """Judge the store that a life left, as the version that is asked sees it."""
    try:
        case = life_case(life, folder)
    except AssertionError:
        return _judge_refused(life, folder)
    _judge(case)
    return case


def life_case(life: Life, folder: Path) -> LifeCase:
    """A copy of the store that a life left, with the plan's faults in it."""
    base = life.base()
    judge = life.judge_of(life.asked)
    truth = _truth(life, base, judge, folder)
    store = copy_store(base.path, folder / "store")
    target = Target(base, truth, store, random.Random(f"faults {life.plan.name}"))
    faults: list[Fault] = []
    for _ in range(MOST_TRIES):
        if len(faults) == life.plan.faults:
            break
        fault = target.draw.choice(CHANGES[base.plan.has_database])(target)
        faults += [fault] if fault is not None else []
    case = LifeCase(life.plan.name, base, truth, judge, folder, store, faults, life=life)
    case.conf.write_text(_conf(life))
    if life.plan.told or life.told or {"storePathCommitLog", "enableLmq"} & life.config.keys():
        case.told = ["--broker-conf", case.conf]
    return case


def _truth(life: Life, base: Base, judge: Judge, folder: Path) -> Truth:
    """What the asked version serves, and all the records that the newest of the life's versions reads."""
    truth = base.truth(judge, folder)
    newest = max((judge.version, *life.versions), key=numbers_of)
    if newest == judge.version or life.is_cut:
        return truth
    with suppress(AssertionError):
        log = base.truth(life.judge_of(newest), folder)
        return replace(truth, sizes=log.sizes, places=log.places, times=log.times)
    return truth


def _judge_refused(life: Life, folder: Path) -> LifeCase:
    """A store on which the asked version does not start: the forecast says so, and no advice is without an end."""
    base, truth = life.base(), Truth({}, {}, {}, {}, {}, [])
    judge = life.judge_of(life.asked)
    case = LifeCase(life.plan.name, base, truth, judge, folder, copy_store(base.path, folder / "store"), [], life=life)
    case.conf.write_text(_conf(life))
    case.told = ["--broker-conf", case.conf]
    check_forecast(case)
    _check_advice(case)
    return case


def _conf(life: Life) -> str:
    """The broker's settings; 4.4.0 has another spelling for the sizes of files."""
    rows = {name: str(value) for name, value in life.config.items()}
    if life.asked == "4.4.0":
        rows |= {name.replace("mapped", "maped"): value for name, value in rows.items()}
    return "".join(f"{name}={value}\n" for name, value in rows.items())


def _owed(case: LifeCase) -> list[tuple[tuple[str, int, int], int]]:
    """Each record of a living topic that queues have, by the place that it was given."""
    life, plan = case.life, case.base.plan
    assert life is not None
    size = plan.log_file_size
    log = log_content(case.base.path, plan.log_directories, size)
    owed = []
    for physical_offset, topic, queue_id, queue_offset in case.truth.places:
        start, at = physical_offset - physical_offset % size, physical_offset % size
        flags = int.from_bytes(log[start][0][at + SYSTEM_FLAGS_AT : at + SYSTEM_FLAGS_AT + 4], "big")
        if physical_offset >= life.deleted.get(topic, 0) and flags & 12 not in NOT_QUEUED:
            owed.append(((topic, queue_id, queue_offset), physical_offset))
    return owed


def dead_records(case: LifeCase) -> dict[int, str]:
    """Physical offsets of records whose topic was deleted after them, and it: light queues may still have them."""
    assert case.life is not None
    return {row[0]: row[1] for row in case.truth.places if row[0] < case.life.deleted.get(row[1], 0)}


def seen_dead(case: LifeCase) -> dict[int, str]:
    """Those of them that something in the store shows to be removed.

    Nothing does where topics.json is damaged; nor of a topic that is used again where no queue begins again: a start
    has put a part of them into each queue again, with filler before them, as it does where a queue has lost what the
    log still has. Of a topic without a route consumers get nothing, whatever a start puts into its queues.
    """
    life = case.life
    assert life is not None
    if case.lacks_topics:
        return {}
    dead = dead_records(case)
    continued = {name[:2] for name, at in case.truth.served.items() if dead.get(at) == name[0]}
    again = {name[:2] for name, at in case.owed if at in case.intact} - continued
    removed = [row for row in case.truth.places if dead.get(row[0]) == row[1] and row[0] in case.intact]
    queues = {(topic, queue_id) for _, topic, queue_id, _ in removed}
    shown = {topic for topic, _ in queues & again if life.has_route(topic)} - case.by_chance
    return {at: topic for at, topic in dead.items() if topic in shown}


def _judge(case: LifeCase) -> None:
    life = case.life
    assert life is not None
    check_forecast(case)
    case.floor = _floor(case)
    routed = sum(1 for topic in dead_records(case).values() if life.has_route(topic))
    if not case.faults and not life.rough and not _is_brought_back(case) and len(seen_dead(case)) == routed:
        if not _are_all_served(case):
            _check_noticed(case)
        elif not _may_lack_ends(case):
            _check_healthy(case)
    _check_advice(case)
    _check_lone(case)


def _are_all_served(case: LifeCase) -> bool:
    """Whether consumers get each message that nobody deleted, at the place that its broker gave it.

    A start after a kill enters the last files of the log only, where an earlier one has left a younger time than a
    clock that was set back: 4.9.8 and 5.5.1 went on with numbers that older records have.
    """
    return all(case.truth.served.get(name) == at for name, at in case.owed)


def _may_lack_ends(case: LifeCase) -> bool:
    """Whether a queue in RocksDB goes on with lower numbers: a kill has lost its rows, and then its records expired."""
    life, ends = case.life, case.truth.queues
    assert life is not None
    return case.base.plan.has_database and any(
        ends.get(name, (0, 0))[1] < queue_offset for name, queue_offset in life.ends.items()
    )


def _check_noticed(case: LifeCase) -> None:
    """Messages that a broker has left out of their queues are no healthy store."""
    answer = case.ask("verify", case.store, "--format", "json")
    if answer.code == 0:
        case.differs("C a loss by a start is not noticed", answer.out)


def _is_brought_back(case: LifeCase) -> bool:
    """Whether a broker's start put records of a deleted topic into queues again, as 5.5.0 does after any stop."""
    dead = dead_records(case)
    return any(dead.get(at) == name[0] for name, at in case.truth.served.items())


def _floor(case: LifeCase) -> Served:
    """The records that consumers get before any command.

    Of a damaged store, those that are where their header says. Where a unit leads nowhere, a broker gives the record
    of a later one: it counts there. Of a topic that is deleted nobody gets any, though a start after a kill puts them
    into queues again: it has no route. Nor does anybody get, before that start, what it puts there of an earlier
    generation of a topic that is used again; the records after these, which it then puts at other places, count at
    their own ones. Where a unit of an older log leads to a record of another queue by now, consumers get what is not
    theirs, or what they get at its own place too: it does not count.
    """
    life = case.life
    assert life is not None
    dead, there = dead_records(case), _units_there(case, case.store)
    own = {(topic, queue_id, queue_offset, at) for at, topic, queue_id, queue_offset in case.truth.places}
    own_units = {
        (queue["topic"], queue["queueId"], row[0]): row[2]
        for queue in case.read_without.get("queues", ())
        for row in queue.get("messages", ())
        if row[1] == "FOUND" and row[3] is not None and row[3][0] == row[2] and life.has_route(queue["topic"])
        if not (life.is_cut or dead.get(row[2]) == queue["topic"])
        or (queue["topic"], queue["queueId"], row[0], row[2]) in there
    }
    places = {at: (topic, queue_id, queue_offset) for at, topic, queue_id, queue_offset in case.truth.places}
    astray = {
        name
        for name, at in own_units.items()
        if places.get(at, name) != name and places[at][0] == name[0] and (*name, at) not in there
        if name[0] != BATCHED
    }
    moved = {places[own_units[name]]: own_units.pop(name) for name in astray}
    own_units = moved | own_units
    twice = {name for name, at in own_units.items() if places.get(at, name) != name and own_units.get(places[at]) == at}
    own_units = {
        name: at
        for name, at in own_units.items()
        if name[0].startswith(LIGHT) or (places.get(at, name)[:2] == name[:2] and name not in twice)
        if name[0] not in case.by_chance
    }
    if not case.faults:
        return {name: at for name, at in own_units.items() if at in case.truth.sizes}
    truth = case.truth.served
    return {
        name: at
        for name, at in own_units.items()
        if at in case.intact and ((*name, at) in own or truth.get(name) == at)
    }


def _units_there(case: LifeCase, store: Path) -> set[tuple[str, int, int, int]]:
    """The units of plain queues before any start: topic, queue id, queue offset, physical offset."""
    folder = store / "consumequeue"
    if case.base.plan.has_database:
        content = content_of(folder, case.folder / "rows")
        places = {(*name, at) for name, at in case.truth.served.items()}
        places |= {(topic, queue_id, number, at) for at, topic, queue_id, number in case.truth.places}
        return {
            (topic, queue_id, number, at)
            for topic, queue_id, number, at in places
            if content is not None
            and (unit := content.units.get(unit_key(topic.encode(), queue_id, number))) is not None
            and int.from_bytes(unit[:8], "big", signed=True) == at
        }
    units = set()
    for file in (file for file in folder.glob("*/[0-9]*/[0-9]*") if file.name.isdigit() and file.is_file()):
        content, begin = file.read_bytes(), int(file.name)
        topic, queue_id = file.parts[-3], int(file.parts[-2])
        for at in range(0, len(content) - UNIT + 1, UNIT):
            units.add((topic, queue_id, (begin + at) // UNIT, int.from_bytes(content[at : at + 8], "big")))
    return units


def _check_healthy(case: LifeCase) -> None:
    """Nothing above a note but what a kill leaves, and no loss that a start would bring."""
    life = case.life
    assert life is not None
    check_verify(case)
    allowed = set()
    if any(version.startswith("4.9.") for version in life.versions):
        allowed.add(LEFT_BY_RECOVERY)
    if any(version.startswith("4.") for version in life.versions):
        allowed |= {"config.consumer-offset-beyond-queue", "config.consumer-offset-without-topic"}
    if not life.broker.offsets and life.deleted.keys() & {*life.broker.topics}:
        # A 5.x has deleted them with the topic, which is there again; lost ones leave the same two files.
        allowed.add("config.consumer-offsets-missing")
    if any(act.end == KILLED_AT_ANY_TIME for act in life.plan.acts):
        allowed.add("consumequeue.wrong-file-size")  # an empty file is one that the broker was making
    if life.deleted and any(act.name == "clock" and act.values["by"] < 0 for act in life.plan.acts):
        # With a clock that was set back a deletion seems older than messages that a start enters again: it is asked.
        allowed.add("config.queue-without-topic")
    signatures = {IS_HEALTHY + name for name in allowed}
    case.disagreements = [row for row in case.disagreements if row.signature not in signatures]


def _check_advice(case: LifeCase) -> None:
    """Follow the next steps; they end in OK, or where a person decides."""
    with case.copied(case.store, "advised") as path:
        before = store_state(path)
        steps: list[Answer] = []
        closed = _follow(case, path, steps)
        if not closed:
            case.differs(f"advice does not close: {_words(steps)}", _told(steps))
        _check_repaired(case, path, before, "advice", steps)


def _follow(case: LifeCase, path: Path, steps: list[Answer]) -> bool:
    command: list[object] = ["verify", path]
    while len(steps) < MOST_STEPS:
        name, *rest = command
        options = ["--yes"] if name in REPAIRS else []
        answer = case.ask(str(name), *rest, *options, "--format", "json")  # type: ignore[arg-type]
        steps.append(answer)
        said = answer.json or {}
        said = said.get("summary") or said
        if said.get("needs_decision"):
            return True
        if answer.code in (1, 5):
            return answer.code == 5 and bool(re.search(r"--accept-loss|--broker-conf|--restore|--topic", answer.err))
        advised = (said.get("next_step") or {}).get("command")
        if advised is None:
            is_repair = name in REPAIRS
            if not is_repair:
                return said.get("verdict") == "ok"
            command = ["verify", path]
            continue
        command = _parsed(case, advised)
    return False


def _parsed(case: LifeCase, advised: str) -> list[object]:
    """A command line that was advised, without what `ask` adds to each command."""
    words = shlex.split(advised)[1:]
    kept: list[object] = []
    skip = False
    for word in words:
        if skip or word in ("--broker-version", "--broker-conf"):
            skip = not skip
            continue
        kept.append(word)
    return kept


def _check_lone(case: LifeCase) -> None:
    """A repair that nobody advised."""
    command, *options = random.Random(f"lone {case.name}").choice(LONE)
    with case.copied(case.store, "lone") as path:
        before = store_state(path)
        steps = [case.ask(command, path, *options, "--yes", "--format", "json")]
        _check_repaired(case, path, before, " ".join([command, *options]), steps)


def _check_repaired(case: LifeCase, path: Path, before: dict[str, Any], what: str, steps: list[Answer]) -> None:
    """A store after commands: the floor, what came back, what a broker does with it, and undo."""
    if repair_count(path) == 0:
        if _difference(before, store_state(path)):
            case.differs(f"{what}: changed without a journal", _told(steps))
        return
    repaired = copy_store(path, case.folder / f"result-{path.name}")
    shutil.rmtree(repaired / ".rmqtool", ignore_errors=True)
    try:
        _check_broker(case, repaired, what, steps)
    except JudgeError as trouble:
        case.differs(f"{what}: broker died", trouble)
    shutil.rmtree(repaired, ignore_errors=True)  # a broker that was left alone writes to the end
    check_undo(case, path, before)


def _check_broker(case: LifeCase, repaired: Path, what: str, steps: list[Answer]) -> None:
    _check_written(case, repaired, what, steps)
    store = case.judge.open(repaired, case.base.plan.config, case.base.plan.topic_settings)
    if not store.serving:
        store.abandon()
        if steps[-1].code == 0 and case.served_without:
            case.differs(f"{what}: does not start", f"{store.opened} {_told(steps)}"[:1400])
        return
    removed = of_the_store(case, changes(store.before, snapshot(repaired))["removed"])
    removed = {name for name in removed if name in store.before and store.before[name][1] != NOTHING}
    if removed and steps[-1].code == 0 and not any("would-lose" in step.out for step in steps):
        case.differs(f"{what}: start deletes files", f"{sorted(removed)} {_told(steps)}")
    read = settled_read(store, case.base.plan, case.named_queues)
    served = whole_served(read, case.truth.sizes)
    if check_served(case, served, what, steps) and steps[-1].code == 0 and not case.by_chance:
        check_goes_on(case, store, read)
    else:
        store.abandon()


def _check_written(case: LifeCase, repaired: Path, what: str, steps: list[Answer]) -> None:
    """No command puts messages of a topic without a route into queues.

    But for those that a start puts there, and those between messages that such a queue has.
    """
    assert case.life is not None
    dead = {at: topic for at, topic in dead_records(case).items() if not case.life.has_route(topic)}
    before = _units_there(case, case.store) | _units_there(case, case.base.path)
    if case.lacks_topics:  # those count that have no queue, where others have some, and that no copy names
        queued, copy = {topic for topic, *_ in _units_there(case, case.store)}, case.store / "config/topics.json.bak"
        named = copy.read_text(errors="replace") if copy.exists() else ""
        dead = {at: topic for at, topic in dead.items() if queued and not (topic in queued or f'"{topic}"' in named)}
    entered = {*case.served_without.values(), *case.truth.served.values()}
    newest: dict[tuple[str, int], int] = {}
    for topic, queue_id, _, at in before:
        newest[topic, queue_id] = max(at, newest.get((topic, queue_id), -1))
    rows = sorted(
        row
        for row in _units_there(case, repaired) - before
        if dead.get(row[3]) == row[0] and row[3] not in entered and row[3] > newest.get(row[:2], -1)
    )
    if rows:
        case.differs(f"{what}: writes deleted messages", f"{len(rows)}: {rows[:6]} {_told(steps)}")


def check_served(case: LifeCase, served: Served, what: str, steps: list[Answer]) -> bool:
    """Whether all that the floor has is served where it was; what was deleted comes back for nobody."""
    gone = {name: (at, served.get(name)) for name, at in case.floor.items() if served.get(name) != at}
    if gone:
        moved = sum(1 for _, now in gone.values() if now is not None)
        numbers = f"{len(gone)} of {len(case.floor)}, {moved} replaced"
        case.differs(f"{what}: below the floor", f"{numbers}: {list(gone.items())[:6]} {_told(steps)}")
    dead, before = seen_dead(case), {*case.served_without.values(), *case.truth.served.values()}
    rows = [name for name, at in served.items() if dead.get(at) == name[0] and at not in before]
    if rows:
        case.differs(f"{what}: came back unasked", f"{len(rows)}: {rows[:6]} {_told(steps)}")
    return not gone


def _difference(before: dict[str, Any], after: dict[str, Any]) -> list[str]:
    return sorted(name for name in before.keys() | after.keys() if before.get(name) != after.get(name))


def _words(steps: list[Answer]) -> str:
    """The commands by name, to group by."""
    return " ".join(f"{step.arguments[0]}:{step.code}" for step in steps)


def _told(steps: list[Answer]) -> str:
    rows = []
    for step in steps:
        said = step.json or {}
        said = said.get("summary") or said
        after = said.get("next_step") or {}
        rows.append(f"[{' '.join(step.arguments[:1])} {step.code} {said.get('headline')} -> {after.get('command')}"
                    f" {after.get('reason')} {step.err.strip()[-200:]}]")  # fmt: skip
    return " ".join(rows)
