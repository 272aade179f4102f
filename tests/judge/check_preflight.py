"""Check F: what rmqtool says before a change of the version is what a broker of the other version then did."""

import random
from typing import Any

from tests.broker.broker import Judge
from tests.judge.bases import VERSIONS, Base, bounds_of, whole_served
from tests.judge.case import Case
from tests.judge.check_forecast import own_queues
from tests.judge.tool import rmqtool


def other_version(base: Base) -> str:
    """A version that did not write the base, older or newer."""
    others = [version for version in VERSIONS if version != base.plan.version]
    return random.Random(f"preflight {base.plan.name}").choice(others)


def check_preflight(case: Case, target: Judge) -> None:
    """Ask for the change from the writer's version to the target's, let the target start on a copy, and compare.

    Messages are counted as records: a target before 5.0 takes a batch in one record for one message.
    """
    before, after = case.base.plan.version, target.version
    versions = ("--from", before, "--to", after)
    answer = rmqtool("forecast", case.store, *versions, "--broker-conf", case.conf, "--format", "json")
    if answer.json is None:
        case.differs(f"F no preflight: exit {answer.code} {answer.trouble}", answer.err)
        return
    earlier, later = answer.json["forecasts"]
    with case.copied(case.store, "preflight") as path:
        store = target.open(path, case.base.plan.config, case.base.plan.topic_settings)
        read = store.read(brief=True) if store.serving else None
        store.abandon()
    if later["starts"] != (read is not None):
        case.differs("F starts", f"{later['why_not']}; the broker: {store.opened.get('loadTrouble')}")
        return
    if read is not None:
        _compare_served(case, answer.code, later, read)
    _compare_reasons(case, answer.json["changes"], earlier, later)


def _compare_served(case: Case, code: int, later: dict[str, Any], read: dict[str, Any]) -> None:
    ours = {
        (queue["topic"], queue["queue_id"]): (max(0, queue["min_queue_offset"]), queue["max_queue_offset"])
        for queue in later["queues"]
        if queue["max_queue_offset"] > 0
    }
    theirs = bounds_of(read, case.base.plan)
    if ours != theirs:
        case.differs("F queues", f"preflight {ours}, the broker {theirs}")
    served = whole_served(read, case.truth.sizes)
    places = {(topic, queue_id, at) for (topic, queue_id, _), at in served.items()}
    missing = {at for at, queue in own_queues(case).items() if at in case.intact and (*queue, at) not in places}
    if bool(missing) != bool(later["lost"]["messages"]) or (missing and code != 3):
        case.differs("F lost", f"preflight {later['lost']}, exit {code}; the broker lacks {sorted(missing)[:20]}")


def _compare_reasons(case: Case, reasons: list[dict[str, Any]], earlier: dict[str, Any], later: dict[str, Any]) -> None:
    """What only the later version loses, has a reason; what nobody loses, has none."""
    is_worse = earlier["starts"] and (not later["starts"] or later["lost"]["messages"] > earlier["lost"]["messages"])
    costs = [
        reason["id"]
        for reason in reasons
        if reason["lost_messages"] or reason["prevents_start"] or reason["id"].startswith("start.")
    ]
    if is_worse and not costs:
        case.differs("F no reason", f"earlier {earlier['lost']}, later {later['lost']}, {reasons}")
    if costs and later["starts"] and not later["lost"]["messages"] and not later["messages_without_log"]:
        case.differs("F reason without loss", costs)
