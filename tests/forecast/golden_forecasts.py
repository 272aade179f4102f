"""Compares a forecast of a golden store with what a real broker did with it; a difference is a sentence."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from rmqtool.engine.reading.reader import Reader, open_reader
from rmqtool.engine.reading.stored_message import StoredMessage
from rmqtool.engine.rules.broker_rules import ReputStart
from rmqtool.engine.rules.versions import rules_for
from rmqtool.forecast.forecast import forecast_of
from rmqtool.forecast.options import ForecastOptions
from rmqtool.forecast.queue_state import QueueState
from rmqtool.forecast.simulate import Simulation
from rmqtool.formats.tags import parse_delay_levels
from rmqtool.store.directory import Settings, survey
from rmqtool.store.file_kinds import FileKind, kind_of
from rmqtool.store.view import open_directory
from tests.engine.reading.golden_answers import differences
from tests.forecast.golden_costs import cost_differences, found_intact
from tests.forecast.started_reader import StartedReader
from tests.golden_stores import Read, broker_manifest, manifest
from tests.golden_stores import settings as sizes

LOG_AND_QUEUES = ("commitlog", "consumequeue/", "batchconsumequeue/")
INDEX = ("index/",)
NO_ANSWER = "not java.lang.IndexOutOfBoundsException"


def simulation_of(path: Path, name: str, version: str) -> Simulation:
    """A simulation of a version over an unpacked store, told what its manifest's configuration says."""
    config = manifest(name).config
    directories = config.get("storePathCommitLog")
    settings = Settings(
        commitlog_directories=tuple(directories.split(",")) if directories else (),
        **vars(sizes(name)),
        batch_file_size=config.get("mapperFileSizeBatchConsumeQueue"),
    )
    options = ForecastOptions(
        delays_ms=parse_delay_levels(*([config["messageDelayLevel"]] if "messageDelayLevel" in config else [])),
        multi_dispatch=config.get("enableMultiDispatch", False) or config.get("enableLmq", False),
        lmq=config.get("enableLmq", False),
        is_slave=config.get("brokerRole") == "SLAVE",
        record_crc=config.get("forceVerifyPropCRC", False),
    )
    return Simulation(survey(open_directory(path), settings), rules_for(version), options, keeps_index=True)


def load_differences(simulation: Simulation, read: Read) -> Iterator[str]:
    """Starts or not, log end, files removed by load."""
    starts = simulation.why_not is None
    if starts != read.load:
        yield f"starts {starts} ({simulation.why_not}), not {read.load}"
    removed = simulation.overlay.unlinked()
    for kind in (LOG_AND_QUEUES, INDEX):
        yield from _removed(removed, read.after_load.removed, kind)
    if starts and read.load:
        assert simulation.log is not None
        after = read.raw["afterLoad"]["offsets"]
        if (simulation.log.minimum, simulation.log.end) != (after["min"], after["max"]):
            yield f"log {simulation.log.minimum}..{simulation.log.end}, not {after['min']}..{after['max']}"


def _removed(found: Iterable[str], said: Iterable[str], kind: tuple[str, ...]) -> Iterator[str]:
    mine = {path for path in found if path.startswith(kind)}
    # What a database removes of its own files is nothing to a message.
    in_files = (path for path in said if kind_of(path) is not FileKind.CONSUMEQUEUE_ROCKSDB)
    theirs = {path for path in in_files if path.startswith(kind) and not path.endswith("/")}
    if mine != theirs:
        yield f"removes {sorted(mine - theirs)} too much, {sorted(theirs - mine)} too little"


def served_differences(simulation: Simulation, reader: Reader, read: Read, compared: Counter[str]) -> Iterator[str]:
    """Every answer of the running broker: queues, pulls, messages, times, keys."""
    assert read.served is not None
    known = {(queue.topic, queue.queue_id) for queue in read.served.queues if queue.known and queue.max}
    files = {name: state.loaded for name, state in simulation.queues.items() if isinstance(state, QueueState)}
    mine = {name for name, loaded in files.items() if loaded.segments}
    if mine - known:
        yield f"queues {sorted(mine - known)} too many"
    for difference in differences(reader, read.served, compared, keys=True):
        # Asked for a time, the broker threw over a unit of zeros; a tool has to answer something.
        if not difference.endswith(NO_ANSWER):
            yield difference
    if simulation.rules.reput_start is ReputStart.CONFIRMED:  # where dispatch changes nothing after load
        for said in read.raw["afterLoad"]["queues"]:
            state = simulation.queues.get((said["topic"], said["queueId"]))
            end = state.physical_end if state is not None else -1
            if end != said["maxPhysicOffset"]:
                yield f"{said['topic']}/{said['queueId']}: maxPhysicOffset {end}, not {said['maxPhysicOffset']}"


def all_differences(path: Path, name: str, version: str, compared: Counter[str]) -> list[str]:
    """What the forecast of a reader in a store's manifest says otherwise than the broker did."""
    read = manifest(name).reads[version]
    with simulation_of(path, name, version) as simulation:
        simulation.run()
        found = list(load_differences(simulation, read))
        compared["stores"] += 1
        if simulation.why_not is None and read.served is not None:
            with StartedReader(simulation) as reader:
                found += served_differences(simulation, reader, read, compared)
            with open_reader(simulation.store, simulation.rules) as before:
                found += cost_differences(forecast_of(simulation), read, found_intact(path, name), before, compared)
        return found


def short_differences(path: Path, name: str, version: str, verdict: Mapping[str, Any]) -> list[str]:
    """The same for a reader of which only a short verdict is known."""
    with simulation_of(path, name, version) as simulation, ExitStack() as stack:
        simulation.run()
        starts = simulation.why_not is None
        if starts != verdict["load"]:
            return [f"starts {starts} ({simulation.why_not}), not {verdict['load']}"]
        if not starts:
            return []
        assert simulation.log is not None
        found = [
            sentence
            for kind in (LOG_AND_QUEUES, INDEX)
            for sentence in _removed(simulation.overlay.unlinked(), verdict["removed"], kind)
        ]
        if simulation.log.end != verdict["log_end"]:
            found.append(f"log end {simulation.log.end}, not {verdict['log_end']}")
        reader = stack.enter_context(StartedReader(simulation))
        served: set[int] = set()
        for topic, queue_id, minimum, maximum in verdict["queues"]:
            queue = reader.queue(topic, queue_id)
            if (queue.min_queue_offset, queue.max_queue_offset) != (minimum, maximum):
                found.append(
                    f"{topic}/{queue_id}: {queue.min_queue_offset}..{queue.max_queue_offset}, not {minimum}..{maximum}"
                )
            served |= _served(reader, topic, queue_id)
        said = set(verdict["served"])
        if served != said:
            found.append(f"serves {sorted(served - said)} too much, {sorted(said - served)} too little")
        return found


def _served(reader: Reader, topic: str, queue_id: int) -> set[int]:
    queue = reader.queue(topic, queue_id)
    places: set[int] = set()
    for queue_offset in range(max(0, queue.min_queue_offset), queue.max_queue_offset):
        answered = reader.get_message(topic, queue_id, queue_offset, 1).messages
        # A unit of zeros is answered with no bytes, which a verdict does not count.
        places.update(_own_offset(message) for message in answered if message.size)
    return places


def _own_offset(message: StoredMessage) -> int:
    """What the record says of itself, by which the short verdicts name messages."""
    return message.record.physical_offset if message.record is not None else message.physical_offset


def broker_differences(path: Path, name: str) -> list[str]:
    """What the forecast of a store of a whole broker says otherwise than the same version of that broker did.

    What the started broker wrote of its own lies behind the recovered end, and is not part of the forecast.
    """
    said = broker_manifest(name)
    served, config = said["served"], said["config"]
    lmq = config.get("enableLmq", False)
    options = ForecastOptions(multi_dispatch=lmq or config.get("enableMultiDispatch", False), lmq=lmq)
    store = survey(open_directory(path), Settings(**vars(sizes(name))))
    with Simulation(store, rules_for(said["broker_version"]), options) as simulation, ExitStack() as stack:
        simulation.run()
        if (simulation.why_not is None) != served["started"]:
            return [f"starts: {simulation.why_not}, not {served['started']}"]
        if not served["started"]:
            return []
        assert simulation.log is not None
        found = []
        gone = sorted(set(served["files"]["before"]) - set(served["files"]["after_load"]))
        for kind in (LOG_AND_QUEUES, INDEX):
            found += _removed(simulation.overlay.unlinked(), gone, kind)
        if simulation.log.end != served["commitlog"]["max_physical_offset"]:
            found.append(f"log end {simulation.log.end}, not {served['commitlog']}")
        reader = stack.enter_context(StartedReader(simulation))
        for queue in served["queues"]:
            known = reader.queue(queue["topic"], queue["queue"])
            bounds = max(0, known.min_queue_offset), known.max_queue_offset
            maximum = queue["max"] - len(queue.get("written_since_start", ()))
            if bounds != (queue["min"], maximum):
                found.append(f"{queue['topic']}/{queue['queue']}: {bounds}, not {queue['min']}..{maximum}")
        forecast = forecast_of(simulation)
        if forecast.lost.messages and said["end"] != "slave killed":
            found.append(f"lost {forecast.lost}, while all was served")
        return found
