"""Check A: what rmqtool forecasts is what the broker then did."""

import re
from collections.abc import Iterable
from typing import Any

from rmqtool.formats.rocksdb.queue import unit_key
from tests.broker.broker import OpenStore
from tests.broker.program import JudgeError
from tests.judge.bases import SINCE, bounds_of, numbers_of, served_of, settled_read, whole_served
from tests.judge.case import Case
from tests.judge.faults_rocksdb import content_of
from tests.judge.intact import log_content

LIGHT = "%LMQ%"
INNER_COUNT = re.compile(rb"INNER_NUM\x01(\d+)")
BAD_BLOCK = re.compile(r"in RocksDB: (default|offset): Corruption")
THROWS_AT_A_GAP_SINCE = (5, 5, 0)
OF_THE_STORE = ("consumequeue/", "batchconsumequeue/", "index/")


def of_the_store(case: Case, paths: Iterable[str]) -> set[str]:
    """Those of the files that belong to log, queues or index; those of a database come and go while it is open."""
    of_the_store = ("index/",) if case.base.plan.has_database else OF_THE_STORE
    folders = (*of_the_store, *(f"{name}/" for name in case.base.plan.log_directories))
    return {path for path in paths if path.startswith(folders) and not path.endswith("/")}


def check_forecast(case: Case) -> None:
    """Forecast, let the broker start on a copy, and compare."""
    forecast = _forecast_of(case)
    try:
        opened, read = started(case)
    except JudgeError as trouble:
        hangs = "gave no answer to start" in str(trouble)
        if forecast is not None and (not hangs or forecast["starts"]):
            case.differs("A broker died", trouble)
        return
    if "OutOfMemory" in str(opened):
        return  # how much a broker may allocate for a length field is a matter of its heap
    case.read_without = read or {"queues": []}
    case.served_without = served_of(case.read_without)
    if forecast is not None:
        _compare(case, forecast, opened, read)


def _forecast_of(case: Case) -> dict[str, Any] | None:
    """What the tool says; where it says nothing, and has no good reason, that is a disagreement."""
    answer = case.ask("forecast", case.store, "--format", "json")
    if answer.code == 5 and "--broker-conf" in answer.err and not case.told:
        case.told = ["--broker-conf", case.conf]
        answer = case.ask("forecast", case.store, "--format", "json")
    forecast = next(iter((answer.json or {}).get("forecasts") or ()), None)
    if forecast is not None and "starts" in forecast:
        return dict(forecast)
    if answer.code != 1 and not (answer.code == 4 and BAD_BLOCK.search(answer.err)):
        case.differs(f"A no forecast: exit {answer.code} {answer.trouble}", answer.err or answer.out)
    return None


def started(case: Case) -> tuple[dict[str, Any], dict[str, Any] | None]:
    """What a start of the broker on a copy did, and what it then serves; nothing where it does not start."""
    if not case.faults and not case.base.plan.has_database and case.version in case.base.starts:
        return case.base.starts[case.version]  # the same store
    with case.copied(case.store, "started") as path:
        store = case.judge.open(path, case.base.plan.config, case.base.plan.topic_settings)
        read = _read(case, store) if store.serving else None
        store.abandon()
        return store.opened, read


def _read(case: Case, store: OpenStore) -> dict[str, Any]:
    """What the broker serves; of queues in RocksDB it lists those that records lead to, the others are named.

    There the first question about a queue may change its minimum, so the ends are asked for once more.
    """
    read = settled_read(store, case.base.plan, case.named_queues)
    if case.base.plan.has_database:
        for queue in (queue for queue in read["queues"] if "error" not in queue):
            queue.update(store.get(queue["topic"], queue["queueId"], []))
    return read


def _compare(case: Case, forecast: dict[str, Any], opened: dict[str, Any], read: dict[str, Any] | None) -> None:
    starts = read is not None
    if forecast["starts"] != starts:
        trouble = opened.get("loadTrouble") or opened.get("startTrouble")
        case.differs(f"A starts: forecast {forecast['starts']}", f"{forecast['why_not']}; the broker: {trouble}")
        return
    deleted = {*forecast["deleted_files"], *forecast["dropped_index_files"]}
    removed = of_the_store(case, opened["files"]["removed"])
    if of_the_store(case, deleted) != removed:
        case.differs(
            "A deleted files", f"forecast {sorted(deleted - removed)} too many, {sorted(removed - deleted)} too few"
        )
    if read is None:
        return
    end = opened["afterLoad"]["offsets"]["max"]
    if forecast["log_end_offset"] != end:
        case.differs("A log end", f"forecast {forecast['log_end_offset']}, the broker {end}")
    _compare_queues(case, forecast, read)
    _compare_lost(case, forecast, read)


def _compare_queues(case: Case, forecast: dict[str, Any], read: dict[str, Any]) -> None:
    theirs = bounds_of(read, case.base.plan)
    failing = {(queue["topic"], queue["queueId"]) for queue in read["queues"] if "error" in queue}
    ours = {
        (queue["topic"], queue["queue_id"]): (max(0, queue["min_queue_offset"]), queue["max_queue_offset"])
        for queue in forecast["queues"]
        if queue["max_queue_offset"] > 0
    }
    if case.base.plan.has_database:
        asked = {*case.named_queues, *((queue["topic"], queue["queueId"]) for queue in read["queues"])}
        ours = {name: ends for name, ends in ours.items() if name in asked}
    for name in failing:  # the broker throws on every question about it
        ours.pop(name, None)
    if ours != theirs:
        names = sorted(name for name in ours.keys() | theirs.keys() if ours.get(name) != theirs.get(name))
        rows = [f"{name}: forecast {ours.get(name)}, the broker {theirs.get(name)}" for name in names]
        case.differs("A queues", "; ".join(rows))


def _compare_lost(case: Case, forecast: dict[str, Any], read: dict[str, Any]) -> None:
    """Records that were changed may count as intact for rmqtool, where nothing that it could see is wrong with them."""
    if case.uncertain_losses == float("inf"):
        return
    served = whole_served(read, case.truth.sizes)
    places = {(topic, queue_id, at) for (topic, queue_id, _), at in served.items()}
    own = own_queues(case)
    counts = message_counts(case)
    lost = {at for at in counts.keys() & case.intact if (*own[at], at) not in places}
    changed = counts.keys() - case.intact
    least = sum(counts[at] for at in lost)
    may_be = changed | before_vanishing_units(case, read["offsets"]["min"])
    most = least + sum(counts[at] for at in (counts.keys() & may_be) - lost) + case.uncertain_losses
    if not least <= forecast["lost"]["messages"] <= most:
        case.differs("A lost", f"forecast {forecast['lost']}, the broker {least}: {sorted(lost)[:20]}")


def before_vanishing_units(case: Case, log_minimum: int) -> set[int]:
    """Records that stand before a unit in RocksDB that leads before the log: where that one is gone, 5.5.0 throws.

    Any compaction removes such a unit, also one in the background of a start.
    """
    if not case.base.plan.has_database or numbers_of(case.version) < THROWS_AT_A_GAP_SINCE:
        return set()
    content = content_of(case.store / "consumequeue", case.folder / "rows")
    units = content.units if content is not None else {}
    keys = {at: unit_key(topic.encode(), queue_id, n + 1) for (topic, queue_id, n), at in case.truth.served.items()}
    return {
        at for at, key in keys.items() if key in units and int.from_bytes(units[key][:8], signed=True) < log_minimum
    }


def own_queues(case: Case) -> dict[int, tuple[str, int]]:
    """The queue of each record: of a record that light queues share, the one of its own topic."""
    rows = sorted(case.owed, key=lambda row: not row[0][0].startswith(LIGHT))
    return {at: (topic, queue_id) for (topic, queue_id, _), at in rows}


def message_counts(case: Case) -> dict[int, int]:
    """How many messages each record of a queue stands for: of an inner batch its parts, else one."""
    plan = case.base.plan
    size = plan.log_file_size
    length = min(size, max(at % size + length for at, length in case.truth.sizes.items()) if case.truth.sizes else 0)
    log = log_content(case.base.path, plan.log_directories, length)
    # An older one takes a batch for a message, and so do queues in RocksDB.
    knows_parts = numbers_of(case.version) >= SINCE["inner"] and not plan.has_database
    counts = {}
    for _, at in case.owed:
        record = log[at - at % size][0][at % size : at % size + case.truth.sizes[at]]
        parts = INNER_COUNT.search(record)
        counts[at] = int(parts[1]) if parts and knows_parts else 1
    return counts
