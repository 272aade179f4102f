"""Damage to operation records and half messages before a real, whole broker: whom it asks, and what comes twice.

The store has 30 half messages. Every third is committed, the next rolled back, and the last of three open; when the
broker asks, the producer commits what was committed or open.
"""

import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from rmqtool.engine.append.message import Message
from rmqtool.engine.rules.versions import rules_for
from rmqtool.fixtures.damages.catalog import DAMAGES
from rmqtool.fixtures.damages.damage import damage_store
from rmqtool.fixtures.recipe import make_store
from rmqtool.fixtures.recipes import RECIPES
from rmqtool.formats.properties import HALF_TOPIC
from tests.broker.broker import Judge
from tests.broker.test_transactions import NEVER_MS, WAIT_SECONDS, timing
from tests.broker.whole import WholeBroker
from tests.commands.transcripts import rmqtool

pytestmark = pytest.mark.slow

VERSIONS = ("4.9.7", "5.5.0")
RECIPE = RECIPES["transaction"]
TOPIC = "orders"
TOPICS = {TOPIC: {"readQueueNums": 2, "writeQueueNums": 2}}
#: The store's messages are old: a broker gives up half messages that are older than it keeps files.
SETTINGS = dict(RECIPE.settings) | {"fileReservedTime": 876_000}
COUNT = 30
NAMED = 12
"""The half message whose operation record is damaged; it is committed."""
OPEN = set(range(2, COUNT, 3))


@pytest.fixture(params=VERSIONS)
def store(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[str, Path, list[bytes]]:
    """A store that no broker has opened, and the bodies of its half messages."""
    path = tmp_path / "store"
    make_store(RECIPE, path, request.param)
    [run] = RECIPE.planned_runs(rules_for(request.param), 0)
    halves = [put.body for put in run.puts if isinstance(put, Message) and put.topic == HALF_TOPIC]
    return request.param, path, halves


def damage(name: str, path: Path) -> str:
    """Damage the store; what verify says."""
    damage_store(DAMAGES[name], path, 0, RECIPE.conf.settings())
    return rmqtool("verify", path).out


def answer(number: int) -> str:
    return "ROLLBACK_MESSAGE" if number < COUNT and number % 3 == 1 else "COMMIT_MESSAGE"


def asked_and_delivered(version: str, path: Path, halves: list[bytes]) -> tuple[Counter[bytes], Counter[bytes]]:
    """How often the producer was asked about each body, and how often each comes, when the broker looked twice."""
    config = timing(1000, 3000, 100) | SETTINGS
    with WholeBroker(version, path, config, TOPICS) as broker:
        broker.checks(TOPIC, {body: answer(number) for number, body in enumerate(halves)})
        broker.transact(TOPIC, b"last", "UNKNOW")
        deadline = time.monotonic() + WAIT_SECONDS
        while broker.checks(TOPIC).get(b"last", 0) < 2 and time.monotonic() < deadline:
            time.sleep(0.3)
        asked = Counter(broker.checks(TOPIC))
        bodies = Counter(message["body"] for queue in broker.consume(TOPIC) for message in queue["messages"])
    assert asked.pop(b"last", 0) >= 2
    return asked, bodies


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("transaction-operation-odd", "transaction.bad-operation"),
        ("transaction-operation-ahead", "transaction.operation-ahead"),
        ("transaction-operation-lost", "transaction.committed-half"),
    ],
)
def test_a_half_message_that_no_operation_record_names_is_committed_twice(
    judge_of: Callable[[str], Judge], store: tuple[str, Path, list[bytes]], name: str, kind: str
) -> None:
    del judge_of  # only a whole broker has transactions
    version, path, halves = store
    assert kind in damage(name, path)
    asked, bodies = asked_and_delivered(version, path, halves)
    assert asked == {halves[number]: 1 for number in OPEN | {NAMED}}
    twice = {halves[number]: 2 if number == NAMED else 1 for number in range(0, COUNT, 3)}
    assert bodies == twice | {halves[number]: 1 for number in OPEN}


def test_with_half_messages_their_ends_are_lost_and_all_that_are_left_are_asked_about(
    judge_of: Callable[[str], Judge], store: tuple[str, Path, list[bytes]]
) -> None:
    del judge_of
    version, path, halves = store
    assert "transaction.expired-half" in damage("transaction-half-expired", path)
    ran = rmqtool("dump", path, "--transactions", "--format", "csv", "--fields", "state,half_queue_offset")
    left = {int(line.split(",")[1]) for line in ran.out.splitlines()[1:]}
    assert 0 < len(OPEN & left) < len(OPEN)
    asked, bodies = asked_and_delivered(version, path, halves)
    assert asked == {halves[number]: 1 for number in left}
    counts = {number: bodies[halves[number]] for number in range(COUNT) if number in left or number in OPEN}
    assert counts == {number: (2, 0, 1)[number % 3] if number in left else 0 for number in counts}


def test_a_half_message_at_the_offset_of_an_old_operation_record_is_never_asked_about(
    judge_of: Callable[[str], Judge], store: tuple[str, Path, list[bytes]]
) -> None:
    del judge_of
    version, path, halves = store
    damage("transaction-operation-ahead", path)
    sent = [b"later %d" % number for number in range(COUNT, 104)]
    broker = WholeBroker(version, path, timing(NEVER_MS, NEVER_MS, NEVER_MS) | SETTINGS, TOPICS)
    for body in sent:
        broker.transact(TOPIC, body, "UNKNOW")
    broker.kill()
    asked, bodies = asked_and_delivered(version, path, [*halves, *sent])
    never = sent[99 - COUNT]
    assert asked == {halves[number]: 1 for number in OPEN | {NAMED}} | {body: 1 for body in sent if body != never}
    assert never not in bodies
