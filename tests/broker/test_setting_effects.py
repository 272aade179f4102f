"""Every setting of a store, changed alone: what makes a start find or serve something else is simulated, or named."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from rmqtool.engine.rules.settings import Setting, settings_of
from tests.broker.broker import Judge
from tests.broker.conftest import JudgeOf
from tests.broker.files import copy_store
from tests.broker.program import JudgeError

CONFIG: Mapping[str, Any] = {
    "mappedFileSizeCommitLog": 65536,
    "mappedFileSizeConsumeQueue": 2000,
    "maxHashSlotNum": 100,
    "maxIndexNum": 400,
}
CLASS = "org.apache.rocketmq.store.config.MessageStoreConfig"
DIRECTORIES = ("commitlog", "consumequeue", "index")


def killed_store(judge: Judge, path: Path) -> None:
    """Twenty messages more in the log than in the queues."""
    store = judge.open(path, CONFIG)
    messages = [
        {"topic": f"T{number % 2}", "queueId": 0, "body": bytes(300), "properties": {"KEYS": f"k{number}"}}
        for number in range(320)
    ]
    store.put(*messages[:300])
    store.wait_dispatched()
    store.stop_dispatch()
    store.put(*messages[300:])
    store.halt()


def outcome(judge: Judge, store: Path, copy: Path, more: Mapping[str, str]) -> object:
    """What a broker with some other setting finds and serves; an error is an outcome too."""
    copy_store(store, copy)
    try:
        report = judge.examine(copy, {**CONFIG, **more}, brief=True)
    except JudgeError:
        return "error"
    if "served" not in report:
        return report["load"]
    changed = [path for paths in report["filesAfter"].values() for path in paths if path.startswith(DIRECTORIES)]
    served = [(queue["topic"], queue["queueId"], queue["messages"]) for queue in report["served"]["queues"]]
    log = report["served"]["offsets"]
    return log["min"], log["max"], served, sorted(path for path in changed if not path.startswith("index/"))


def other_values(setting: Setting, default: str) -> Iterator[str]:
    if setting.kind == "boolean":
        yield "false" if default == "true" else "true"
    elif setting.kind in ("int", "long", "double"):
        yield "0"
    else:
        yield from (word for word in ("x" if setting.kind == "text" else setting.kind).split("|") if word != default)


@pytest.mark.slow
@pytest.mark.parametrize("version", ["4.9.7", "5.5.1"])
def test_a_setting_without_effect_has_none(judge_of: JudgeOf, tmp_path: Path, version: str) -> None:
    judge, settings = judge_of(version), settings_of(version)
    killed_store(judge, tmp_path / "store")
    [held] = judge.applied_settings([b""])
    usual = outcome(judge, tmp_path / "store", tmp_path / "usual", {})
    assert outcome(judge, tmp_path / "store", tmp_path / "again", {}) == usual
    different = [
        name
        for name, default in held[CLASS].items()
        if settings[name].effect == "none"
        for number, value in enumerate(other_values(settings[name], default))
        if outcome(judge, tmp_path / "store", tmp_path / f"{name}-{number}", {name: value}) != usual
    ]
    assert different == []
