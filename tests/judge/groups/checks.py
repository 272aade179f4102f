"""What rmqtool says and does about a group's member is compared with what a broker does."""

from __future__ import annotations

import shutil
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

from tests.broker.files import digest
from tests.judge.bases import CLEAN
from tests.judge.check_repair import KEYS_MAX
from tests.judge.check_verify import SEEN, names_file, says_nothing_of
from tests.judge.groups.answers import Served, same_message, served_of
from tests.judge.groups.case import GroupAnswer, GroupCase
from tests.judge.groups.entries import data_files
from tests.judge.groups.faults import DLEDGER, PLAIN
from tests.judge.groups.writing import HALF, settings_of
from tests.judge.target import Fault
from tests.judge.tool import rmqtool
from tests.store_state import store_state

OK, FOUND, UNSUPPORTED, REFUSED = 0, 3, 4, 5
WITHOUT_START = {"will-not-start", "log-missing"}
"""Verdicts where no broker starts; one on a lost log comes first."""
DROPPED = "dledger.dropped-at-start"
NOT_DISPATCHED = {
    "consumequeue.behind-log", "consumequeue.missing-queue", "consumequeue.missing-file", "index.missing-key",
    "index.missing-file",
}  # fmt: skip
"""What a broker leaves that is killed before it dispatches its last messages, and a member that learns late of them."""
KEYS_DROPPED = {"index.missing-key", "index.missing-file"}
"""A start after a kill drops index files, and dispatches the log again only from what the group has committed on."""
OFFSETS_GIVEN_AGAIN = {"commitlog.queue-offset-repeated", "consumequeue.missing-unit"}
"""What a start dropped, and then gave the offsets of to new messages."""
OF_THE_STORE = ("consumequeue/", "batchconsumequeue/", "index/", "commitlog/")


def check_group(case: GroupCase) -> None:
    """All checks; what is asked first is what a person asks first."""
    findings = check_verify(case)
    check_forecast(case)
    check_refusals(case)
    if case.now is not None:
        check_converted(case, findings)
        check_rebuilt(case, findings)


def count_of(findings: Collection[Mapping[str, Any]], name: str) -> int:
    return sum(int(row.get("count") or 1) for row in findings if row["id"] == name)


def check_verify(case: GroupCase) -> list[dict[str, Any]]:
    """Starts or not, a healthy store, every fault, and what is not served; the findings."""
    answer = case.ask("verify", case.store)
    findings: list[dict[str, Any]] = answer.json.get("findings", [])
    verdict = answer.json.get("summary", {}).get("verdict")
    if verdict not in WITHOUT_START if case.now is None else verdict == "will-not-start":
        case.differs(
            "verify: starts or not", f"{verdict}, the broker {'does not start' if case.now is None else 'starts'}"
        )
    seen = {row["id"]: (row.get("count"), row["message"]) for row in findings if row["severity"] in SEEN}
    if not case.faults:
        for name in sorted(seen.keys() - left_by_a_kill(case)):
            case.differs(f"verify: a healthy store has {name}", seen[name])
    for fault in case.faults:
        if is_to_be_found(case, fault) and not any(is_named(case, fault, row) for row in findings):
            case.differs(f"verify: not found: {fault.name}", f"{fault}; {_ids(findings)}")
    _check_dropped(case, findings)
    has_expired = any(fault.name == "gone" and fault.silent for fault in case.faults)
    if answer.code == OK and _lost(case) and not has_expired:
        case.differs("verify: OK though messages are not served", f"{len(_lost(case))} of {len(_whole(case).offsets)}")
    return findings


def _ids(findings: Collection[Mapping[str, Any]]) -> list[str]:
    return sorted({row["id"] for row in findings})


def left_by_a_kill(case: GroupCase) -> set[str]:
    """What the runs of this very store may have left above a note; after clean ends nothing."""
    ends = [end for _, end in case.plan.base.runs]
    left = set[str]()
    if (case.store / "abort").exists():
        left |= {"store.abort-present", DROPPED}
    if case.written.undispatched or (case.plan.members > 1 and (case.store / "abort").exists()):
        left |= NOT_DISPATCHED
    if any(end != CLEAN for end in ends[:-1]):
        left |= KEYS_DROPPED
        if _superseded(case):
            left |= OFFSETS_GIVEN_AGAIN
    return left


def is_to_be_found(case: GroupCase, fault: Fault) -> bool:
    """Whether somebody can see a fault: no checksum and no other file tells of what is silent."""
    if fault.silent or (not case.intact and fault.area in ("consumequeue", "index", "checkpoint")):
        return False
    file, before = case.store / fault.file, case.base.path / fault.file
    if file.is_file() and before.is_file() and digest(file) == digest(before):
        return False  # a later fault restored it
    if fault.area in (DLEDGER, PLAIN):
        return True
    return not (before.exists() and says_nothing_of(case, fault))  # type: ignore[arg-type]


def is_named(case: GroupCase, fault: Fault, row: Mapping[str, Any]) -> bool:
    """Whether a finding is about a fault; where no entry is left behind a plain log, that one lacks its end."""
    areas = [fault.area]
    if fault.area == DLEDGER and not data_files(case.store, case.plan.data_directories):
        areas.append(PLAIN)
    return any(names_file(dict(row), area, fault.file) for area in areas)


def _check_dropped(case: GroupCase, findings: list[dict[str, Any]]) -> None:
    """What a start drops is counted: exactly in a healthy store, and of a damaged one no more than is lost."""
    if case.now is None:
        return
    counted, served = count_of(findings, DROPPED), set(case.now.offsets.values())
    missing = len(case.live - served)
    if counted != missing if not case.faults else counted > missing:
        case.differs("verify: dropped at start", f"{counted} counted, {missing} of {len(case.live)} are not served")


def _whole(case: GroupCase) -> Served:
    assert case.whole is not None
    return case.whole


def _lost(case: GroupCase) -> set[int]:
    return set(_whole(case).offsets.values()) - set(case.now.offsets.values() if case.now is not None else ())


def check_forecast(case: GroupCase) -> None:
    """No start with a log of DLedger is simulated, which has to be said; one that is shall be what the broker does."""
    answer = case.ask("forecast", case.store)
    forecast = next(iter(answer.json.get("forecasts") or ()), None)
    if forecast is None or "starts" not in forecast:
        if answer.code != UNSUPPORTED or "DLedger" not in answer.err:
            case.differs("forecast: refused without DLedger as the reason", f"exit {answer.code} {answer.err[:500]}")
        return
    if answer.code == OK and (case.now is None or _lost(case)):
        case.differs(
            "forecast: OK though messages are not served", f"{len(_lost(case))}, starts {case.now is not None}"
        )
    compare_forecast(case, "forecast", forecast, case.now)


def compare_forecast(case: GroupCase, name: str, forecast: dict[str, Any], served: Served | None) -> None:
    """The content of a forecast and what a broker did."""
    if forecast["starts"] != (served is not None):
        case.differs(f"{name}: starts or not", f"forecast {forecast['starts']}: {forecast['why_not']}")
        return
    if served is None:
        return
    deleted = {*forecast["deleted_files"], *forecast["dropped_index_files"]}
    removed = {path for path in served.removed if path.startswith(OF_THE_STORE) and not path.endswith("/")}
    if {path for path in deleted if path.startswith(OF_THE_STORE)} != removed:
        case.differs(f"{name}: deleted files", f"forecast {sorted(deleted)}, the broker {sorted(removed)}")
    bounds = {
        (queue["topic"], queue["queue_id"]): (max(0, queue["min_queue_offset"]), queue["max_queue_offset"])
        for queue in forecast["queues"]
        if queue["max_queue_offset"] > 0
    }
    if bounds != served.bounds:
        differ = sorted(
            key for key in bounds.keys() | served.bounds.keys() if bounds.get(key) != served.bounds.get(key)
        )
        rows = [f"{key}: forecast {bounds.get(key)}, the broker {served.bounds.get(key)}" for key in differ]
        case.differs(f"{name}: queues", "; ".join(rows))


def check_refusals(case: GroupCase) -> None:
    """Commands that do not know DLedger say so, and change nothing."""
    before = store_state(case.store)
    for command in ("recover", "salvage"):
        answer = case.ask(command, case.store, "--yes")
        reads = "DLedger" in answer.err and answer.code == UNSUPPORTED
        if not reads and not (case.faults and answer.code in (FOUND, UNSUPPORTED, REFUSED) and _reason(answer)):
            case.differs(f"{command}: exit {answer.code}", answer.err[:600])
        if store_state(case.store) != before:
            case.differs(f"{command}: the store changed", f"exit {answer.code}")
            return


def _reason(answer: GroupAnswer) -> str:
    """Why a command did not do its work: what it says, or what it names as damage."""
    return answer.err.strip() or " ".join(row["id"] for row in answer.json.get("damage") or ())


def _is_refused(case: GroupCase, command: str, answer: GroupAnswer, findings: list[dict[str, Any]]) -> bool:
    """Whether a command did not do its work; a disagreement where it had to, or gives no reason."""
    rest = {row["id"] for row in answer.json.get("remaining") or ()}
    is_done = bool(answer.json.get("applied")) or (answer.code in (OK, FOUND) and answer.json.get("steps") == [])
    if is_done and (answer.code == OK or rest <= left_by_a_kill(case) or (case.faults and rest)):
        return False
    if not case.faults:
        case.differs(f"{command}: exit {answer.code} for a healthy group", f"{_reason(answer)[:800]} {sorted(rest)}")
    elif is_done or not _reason(answer):
        case.differs(f"{command}: refused without a reason", f"exit {answer.code}")
    elif answer.code == REFUSED and answer.json["floor"]["taken_away"] + answer.json["floor"]["moved"]:
        pass  # a person is asked about records that a fault has put to another place, or left without a right header
    elif not _lost(case) and not any(row["severity"] == "error" for row in findings):
        case.differs(f"{command}: refused, all is served, and verify has no error", _reason(answer)[:800])
    return not is_done


def check_converted(case: GroupCase, findings: list[dict[str, Any]]) -> None:
    """The source stays, every message is served where it was, and what is served beyond that is counted."""
    now, plain, before = case.floor, case.folder / "plain", store_state(case.store)
    answer = case.ask("convert", case.store, "--from-dledger", "--output", plain, "--yes")
    if store_state(case.store) != before:
        case.differs("convert: the source changed", f"exit {answer.code}")
    if _is_refused(case, "convert", answer, findings):
        return
    after = served_of(case.judge, plain, case.plan.base.config, case.plan.base.topic_settings, now.by_key)
    if after is None:
        case.differs("convert: the broker does not start", f"exit {answer.code}")
        return
    _compare_messages(case, "convert", now, after)
    assert case.now is not None
    floor, dropped = answer.json["floor"], count_of(findings, DROPPED)
    if not case.faults and floor["kept"] + floor["added"] != len(after.offsets):
        case.differs("convert: what it would serve", f"{floor}, served are {len(after.offsets)}")
    if not case.faults and not 0 <= floor["kept"] - len(case.now.offsets) <= dropped:
        case.differs("convert: what is served", f"{floor}, {len(case.now.offsets)} are served and {dropped} dropped")
    _check_forecast_of_plain(case, plain, after)


def _check_forecast_of_plain(case: GroupCase, plain: Path, served: Served) -> None:
    """What is forecast of the converted store is what its broker did."""
    conf = case.folder / "plain.conf"
    conf.write_text(case.plan.base.conf_text)
    arguments = ("--format", "json", "--broker-version", case.plan.asked, "--broker-conf", conf)
    ran = rmqtool("forecast", plain, *arguments)
    forecast = next(iter((ran.json or {}).get("forecasts") or ()), None)
    unserved = max(0, len(case.intact - case.unqueued) - len(set(served.offsets.values())))  # damaged ones count too
    if forecast is None or (ran.code, forecast["lost"]["messages"]) != (FOUND if unserved else OK, unserved):
        text = f"{unserved} are not served; exit {ran.code} {ran.err} {ran.out[:600]}"
        case.differs("forecast of the converted store", text)
    if forecast is not None:
        compare_forecast(case, "forecast of the converted store", forecast, served)


def _superseded(case: GroupCase) -> set[int]:
    """Records that an earlier start dropped, and whose offsets later messages got."""
    return case.truth.sizes.keys() - case.live - case.unqueued


def _compare_messages(case: GroupCase, command: str, before: Served, after: Served) -> None:
    """Every message is served at its place with its content, and its keys lead to it."""
    gone = before.offsets.keys() - after.offsets.keys()
    if gone:
        case.differs(f"{command}: below the floor", f"{len(gone)} of {len(before.offsets)}: {sorted(gone)[:5]}")
    changed = [
        (place, message, after.contents.get(place))
        for place, message in before.contents.items()
        if place not in gone and not same_message(message, after.contents.get(place, {}))
    ]
    if changed:
        case.differs(f"{command}: another message", f"{len(changed)}: {changed[:1]}")
    halves = {at: place for place, at in _whole(case).offsets.items() if place[0] == HALF}
    for place, message in before.contents.items():
        half = halves.get(message["preparedTransactionOffset"])
        expected = after.offsets.get(half) if half in after.offsets else message["preparedTransactionOffset"]
        new = after.contents.get(place, {"preparedTransactionOffset": expected})["preparedTransactionOffset"]
        if new != expected:
            case.differs(f"{command}: offset of a half message", f"{place}: {new}, expected {expected}")
            break
    for key, places in before.by_key.items():
        if max(len(places), len(after.by_key.get(key, ()))) >= KEYS_MAX:
            continue
        owed = {place for place in map(before.by_place, places) if place is not None and place not in gone}
        if missing := {place for place in owed if after.offsets.get(place) not in after.by_key.get(key, ())}:
            case.differs(f"{command}: a key leads nowhere", f"{key}: {sorted(missing)}")
            break


def check_rebuilt(case: GroupCase, findings: list[dict[str, Any]]) -> None:
    """All that was served is served where it lay, by its keys too; a healthy log is served whole; undo is exact."""
    now, before = case.floor, store_state(case.store)
    answer = case.ask("rebuild", case.store, "--yes")
    if not _is_refused(case, "rebuild", answer, findings):
        after = served_of(case.judge, case.store, settings_of(case.plan), case.plan.base.topic_settings, now.by_key)
        _compare_rebuilt(case, now, after)
    if (case.store / ".rmqtool").exists():
        named = [text for name in case.plan.directories for text in ("--commitlog", case.store / name)]
        undone = rmqtool("undo", case.store, "--yes", *named)
        shutil.rmtree(case.store / ".rmqtool", ignore_errors=True)
        if undone.code != OK or store_state(case.store) != before:
            case.differs("undo is not exact", f"exit {undone.code} {undone.err}")


def _compare_rebuilt(case: GroupCase, now: Served, after: Served | None) -> None:
    if after is None:
        case.differs("rebuild: the broker does not start", "")
        return
    if moved := {place for place, at in now.offsets.items() if after.offsets.get(place) not in (None, at)}:
        case.differs("rebuild: another message", f"{len(moved)} of {len(now.offsets)}: {sorted(moved)[:5]}")
    _compare_messages(case, "rebuild", now, after)
    if not case.faults and (dropped := case.live - set(after.offsets.values())):
        case.differs("rebuild: not all of a healthy log is served", f"{len(dropped)} of {len(case.live)}")
