"""What whole brokers do with an odd entry in `topics.json`, and that verify, forecast and the repair fit it."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from rmqtool.formats.remoting import RequestCode
from rmqtool.remoting.connection import Connection
from tests.broker.broker import Judge
from tests.broker.files import copy_store
from tests.broker.program import JudgeError
from tests.broker.whole import WholeBroker
from tests.commands.transcripts import rmqtool

CONFIG = {"mappedFileSizeCommitLog": 65536, "mappedFileSizeConsumeQueue": 600, "timerWheelEnable": True}
FILE = "config/topics.json"
ODD, SOUND, OWN = "Orders", "Payments", "SELF_TEST_TOPIC"
COUNT = 4
ENTRY = {
    "order": False, "perm": 6, "readQueueNums": 4, "topicFilterType": "SINGLE_TAG", "topicName": ODD, "topicSysFlag": 0,
    "writeQueueNums": 4,
}  # fmt: skip
SERVED = {ODD, SOUND}
REFUSED = frozenset[str]()
"""The broker runs without any topic of clients."""
NO_START = None
VERSIONS = ["4.9.7", "5.5.0", *(pytest.param(version, marks=pytest.mark.slow) for version in ("5.3.3", "5.4.0"))]


def entry(**changes: object) -> str:
    return json.dumps({name: value for name, value in {**ENTRY, **changes}.items() if value is not ...})


CASES: dict[str, tuple[str, Any]] = {
    "sound": (entry(), SERVED),
    "null": ("null", REFUSED),
    "no-name": (entry(topicName=...), (NO_START, {SOUND})),
    "other-name": (entry(topicName="Other"), {SOUND}),
    "perm-word": (entry(perm="RW"), REFUSED),
    "unknown-field": (entry(color="red", more={"a": [1]}), SERVED),
}
"""The entry, and the topics to which clients get a route and whose messages they get; of 5.x, and of 4.9 if other."""
MORE: dict[str, tuple[str, Any]] = {
    "number": ("5", REFUSED),
    "text": ('"x"', REFUSED),
    "empty-text": ('""', REFUSED),
    "list": ("[]", REFUSED),
    "object": ("{}", (NO_START, {SOUND})),
    "name-null": (entry(topicName=None), (NO_START, {SOUND})),
    "name-empty": (entry(topicName=""), {SOUND}),
    "name-number": (entry(topicName=5), {SOUND}),
    "no-queues-no-perm": (entry(readQueueNums=..., writeQueueNums=..., perm=...), SERVED),
    "queues-text": (entry(readQueueNums="4", perm="6"), SERVED),
    "queues-fraction": (entry(readQueueNums=4.7), SERVED),
    "queues-true": (entry(readQueueNums=True), SERVED),
    "queues-word": (entry(readQueueNums="x"), REFUSED),
    "queues-huge": (entry(readQueueNums=1 << 40), REFUSED),
    "flag-word": (entry(topicSysFlag="x"), REFUSED),
    "flag-empty": (entry(topicSysFlag=""), SERVED),
    "order-word": (entry(order="yes"), REFUSED),
    "order-text": (entry(order="true"), SERVED),
    "order-null": (entry(order=None), SERVED),
    "filter-word": (entry(topicFilterType="BOGUS"), SERVED),
    "attributes-null": (entry(attributes=None), SERVED),
    "twice": (f'{entry(readQueueNums=2)},"{ODD}":{entry()}', SERVED),
}


def of_version(told: Any, version: str) -> Any:
    return told[version.startswith("4")] if isinstance(told, tuple) else told


@pytest.fixture(scope="module", params=VERSIONS)
def written(
    request: pytest.FixtureRequest, judge_of: Callable[[str], Judge], tmp_path_factory: pytest.TempPathFactory
) -> tuple[str, Path]:
    """A store whose topics.json is whole and has no copy."""
    del judge_of  # only a whole broker reads the file
    version = request.param
    path = tmp_path_factory.mktemp("topics") / "store"
    with WholeBroker(version, path, CONFIG, {ODD: {}, SOUND: {}}) as broker:
        for number in range(2 * COUNT):
            broker.send((ODD, SOUND)[number % 2], 0, b"%d" % number)
    (path / f"{FILE}.bak").unlink(missing_ok=True)
    return version, path


def with_entry(path: Path, text: str) -> None:
    """Give the topic this entry."""
    content = json.loads((path / FILE).read_text())
    del content["topicConfigTable"][ODD]
    table = f'{{"{ODD}":{text},{json.dumps(content.pop("topicConfigTable"))[1:]}'
    (path / FILE).write_text(f'{{"topicConfigTable":{table},{json.dumps(content)[1:]}')


def served(version: str, path: Path) -> set[str] | None:
    """The topics to which a client gets a route, and all messages; None where the broker does not start."""
    try:
        broker = WholeBroker(version, path, CONFIG)
    except JudgeError:
        return None
    try:
        broker.await_route(OWN)
        with closing(Connection(broker.started["nameServer"])) as name_server:
            routed = [
                one
                for one in (ODD, SOUND)
                if not name_server.call(RequestCode.GET_ROUTEINFO_BY_TOPIC, {"topic": one}).code
            ]
        return {topic for topic in routed if broker.bodies(topic).total() == COUNT}
    finally:
        broker.kill()


def check(version: str, path: Path, expected: set[str] | None) -> None:
    """The broker serves these topics; the tool says so, and its repair gives clients both."""
    assert served(version, copy_store(path, path.parent / "served")) == expected
    options = ("--broker-version", version)
    found = {one["id"] for one in json.loads(rmqtool("verify", path, *options, "--format", "json").out)["findings"]}
    ran = rmqtool("forecast", path, *options, "--format", "json")
    shown = json.loads(ran.out)
    is_refused = expected == REFUSED or (expected is NO_START and (path / f"{FILE}.bak").exists())
    told = {"config.unreadable"} if is_refused else {"config.topic-misnamed"} if expected != SERVED else set()
    assert {one for one in found if one.startswith("config.")} == told
    assert (ran.code, shown["forecasts"][0]["starts"]) == (3 if told else 0, expected is not NO_START)
    if told:
        assert shown["next_step"]["command"].split()[1:4:2] == ["rebuild", "--topics"]
        assert rmqtool("rebuild", path, "--topics", "--yes", *options).code in (0, 3)
        assert served(version, path) == SERVED


@pytest.mark.parametrize("name", [*CASES, *(pytest.param(name, marks=pytest.mark.slow) for name in MORE)])
def test_an_odd_entry(written: tuple[str, Path], tmp_path: Path, name: str) -> None:
    version, store = written
    text, told = {**CASES, **MORE}[name]
    path = copy_store(store, tmp_path / "store")
    with_entry(path, text)
    check(version, path, of_version(told, version))


def test_the_copy_is_read_instead_of_a_file_with_an_odd_entry(written: tuple[str, Path], tmp_path: Path) -> None:
    version, store = written
    path = copy_store(store, tmp_path / "store")
    shutil.copy(path / FILE, path / f"{FILE}.bak")
    with_entry(path, "null")
    assert served(version, copy_store(path, tmp_path / "from-copy")) == SERVED
    found = json.loads(rmqtool("verify", path, "--broker-version", version, "--format", "json").out)["findings"]
    assert [one["id"] for one in found if one["id"].startswith("config.")] == ["config.backup-better"]
    shutil.copy(path / FILE, path / f"{FILE}.bak")
    check(version, path, NO_START)


@pytest.mark.slow
@pytest.mark.parametrize("table", [None, [], 5, "x"])
def test_a_table_of_another_shape(written: tuple[str, Path], tmp_path: Path, table: object) -> None:
    version, store = written
    path = copy_store(store, tmp_path / "store")
    (path / FILE).write_text(json.dumps({**json.loads((path / FILE).read_text()), "topicConfigTable": table}))
    check(version, path, set(REFUSED))
