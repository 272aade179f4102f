"""The golden stores with damage inside the log, salvaged, before real brokers."""

from collections.abc import Callable
from pathlib import Path

import pytest
from _pytest.mark import ParameterSet

from rmqtool.repair.machine.apply import apply_plan
from rmqtool.repair.machine.fingerprint import fingerprint
from rmqtool.repair.machine.plan import Plan
from rmqtool.repair.machine.store_paths import StorePaths
from rmqtool.repair.salvage.plan import SalvageOptions, plan_salvage
from tests.broker.broker import Judge, served_places
from tests.broker.test_recover import changed, intact, put_to_all
from tests.broker.versions import ROUTINE
from tests.golden_stores import config_and_topics, damaged_names, manifest
from tests.repair.golden_repairs import options_of, rules_of, store_of
from tests.repair.recover.test_plan import SALVAGED
from tests.verify.test_golden import damage_of

JudgeOf = Callable[[str], Judge]
Unpacked = Callable[[str], Path]

OFTEN = (
    "4.9.7-damage-flip-body-middle-file-abort",
    "5.5.0-damage-zero-hole-abort",
    "5.5.0-damage-size-plausible",
    "5.5.0-damage-missing-final-blank-abort",
)


def salvaged_stores() -> list[ParameterSet]:
    return [
        pytest.param(name, version, marks=() if name in OFTEN and version in ("4.9.7", "5.5.0") else pytest.mark.slow)
        for name in damaged_names()
        if damage_of(name).startswith(SALVAGED) and not damage_of(name).startswith("log-dir")
        for version in ROUTINE
        if version in manifest(name).reads
    ]


@pytest.mark.parametrize(("name", "version"), salvaged_stores())
def test_every_intact_message_is_served(
    judge_of: JudgeOf, golden_copy: Unpacked, tmp_path: Path, name: str, version: str
) -> None:
    path, found = golden_copy(name), manifest(name)
    sent = manifest(found.base) if found.base else found  # readers of the damaged store may have met changed records
    before = {record.at for record in intact(path, sent)}
    (tmp_path / "staging").mkdir()
    places, rules = StorePaths(path), rules_of(name)
    print_before = fingerprint(places)
    made = plan_salvage(store_of(path, name), rules, tmp_path / "staging", SalvageOptions(options_of(name)))
    apply_plan(Plan("salvage", print_before, rules.version, made.steps), places)
    kept = intact(path, sent)
    assert before <= {record.at for record in kept}
    config, topics = config_and_topics(name)
    store = judge_of(version).open(path, config, topics)
    assert store.serving, store.opened
    read = store.read()
    assert changed(store) == []
    now = served_places(read)
    assert {(r.topic, r.queue_id, r.queue_offset): r.at for r in kept}.items() <= now.items()
    # Nothing that was never sent, but tombstones in the log's first file, where no unit can hide them.
    sizes = manifest(name).config["mappedFileSizeCommitLog"]
    assert {at for at in now.values() if at >= sizes} <= {record.at for record in kept}
    put_to_all(store, read)
    store.halt()
    again = judge_of(version).open(path, config, topics)
    after = served_places(again.read())
    assert {place: at for place, at in after.items() if place in now} == now
    again.shutdown()
