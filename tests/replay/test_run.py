"""A replay sends each message once and in order, whatever a broker does, and a second run goes on where one ended."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from rmqtool.dump.waiting import DueTimes
from rmqtool.engine.append.message import Message
from rmqtool.engine.append.open_writer import new_store
from rmqtool.engine.append.writer_config import WriterConfig
from rmqtool.engine.rules.versions import NEWEST, rules_for
from rmqtool.errors import AnswerError, ConnectionLostError, RefusedError
from rmqtool.replay import sender as replay_sender
from rmqtool.replay.cluster import Cluster
from rmqtool.replay.journal import ReplayJournal
from rmqtool.replay.outgoing import Selection
from rmqtool.replay.run import Replay, SourceStore
from rmqtool.store.location import survey_store
from tests.remoting_server import Request, answer, serving
from tests.replay.broker_stub import BrokerStub

RULES = rules_for(NEWEST)
COUNT = 20


@pytest.fixture(autouse=True)
def _hurry(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(replay_sender, "SETTLE_SECONDS", 0.0)
    monkeypatch.setattr(replay_sender, "_PAUSES", (0.001, 0.01))


def store_at(root: Path, bodies: list[bytes]) -> SourceStore:
    with new_store(root, RULES, WriterConfig(commitlog_file_size=65536)) as writer:
        writer.put_all([Message(topic="T", queue_id=at % 3, body=body) for at, body in enumerate(bodies)])
    return SourceStore(survey_store(root), RULES, DueTimes())


@pytest.fixture
def source(tmp_path: Path) -> SourceStore:
    return store_at(tmp_path / "source", [b"%d" % number for number in range(COUNT)])


@contextmanager
def cluster_of(stub: BrokerStub) -> Iterator[Cluster]:
    with serving(stub.reply) as address:
        stub.address = address
        with closing(Cluster(address)) as cluster:
            yield cluster


def run(stub: BrokerStub, stores: list[SourceStore], state: Path | None = None, patience: float = 20.0) -> Replay:
    with cluster_of(stub) as cluster, closing(ReplayJournal(state, {})) as journal:
        replay = Replay(cluster, journal, Selection(renames={"T": "New"}), patience_seconds=patience)
        replay.run(stores, lambda _done, _total: None)
    return replay


def bodies(stub: BrokerStub) -> list[bytes]:
    return [body for _, _, body, _ in stub.stored]


EXPECTED = [b"%d" % number for number in range(COUNT)]


def test_messages_go_to_the_queue_of_their_old_queue_in_order(source: SourceStore) -> None:
    stub = BrokerStub({"New": 2})
    replay = run(stub, [source])
    assert bodies(stub) == EXPECTED
    assert [(topic, queue_id) for topic, queue_id, _, _ in stub.stored] == [("New", at % 3 % 2) for at in range(COUNT)]
    assert replay.state.sent == {"T": COUNT}
    assert replay.state.is_complete


@pytest.mark.parametrize("stage", ["before", "after"])
def test_a_lost_answer_is_looked_up_before_the_message_is_sent_again(source: SourceStore, stage: str) -> None:
    stub = BrokerStub({"New": 2})
    setattr(stub, stage, lambda number, _request: None if number in (1, 7, 8) else b"go on")
    run(stub, [source])
    assert bodies(stub) == EXPECTED


@pytest.mark.parametrize("code", [1, 2, 14])
def test_a_busy_broker_is_asked_again(source: SourceStore, code: int) -> None:
    def before(number: int, request: Request) -> bytes:
        return answer(request, code, remark="[PCBUSY_CLEAN_QUEUE]") if number % 3 == 1 else b"go on"

    stub = BrokerStub({"New": 2}, before)
    run(stub, [source])
    assert bodies(stub) == EXPECTED


def test_an_error_after_the_message_was_stored_is_looked_up(source: SourceStore) -> None:
    stub = BrokerStub({"New": 2}, after=lambda number, request: answer(request, 1) if number == 5 else b"go on")
    run(stub, [source])
    assert bodies(stub) == EXPECTED


def test_a_broker_that_stays_busy_ends_the_run_with_its_words(source: SourceStore) -> None:
    stub = BrokerStub({"New": 2}, lambda _number, request: answer(request, 2, remark="[REJECTREQUEST]"))
    with pytest.raises(AnswerError, match=r"refuses messages to topic New: SYSTEM_BUSY: \[REJECTREQUEST\]"):
        run(stub, [source], patience=0)


def test_a_message_that_is_refused_is_counted_and_the_rest_is_sent(source: SourceStore) -> None:
    stub = BrokerStub({"New": 2}, lambda number, request: answer(request, 13, remark="no") if number == 3 else b"go on")
    state = run(stub, [source]).state
    assert bodies(stub) == [body for body in EXPECTED if body != b"2"]
    assert (state.not_sent["refused"], [refusal["reason"] for refusal in state.refusals]) == (
        1,
        ["MESSAGE_ILLEGAL: no"],
    )


def test_a_topic_without_a_route_is_named(source: SourceStore) -> None:
    with pytest.raises(AnswerError, match="no route to topic New: create it"):
        run(BrokerStub({}), [source])


def test_a_cluster_with_more_queues_than_a_state_holds_is_refused(
    source: SourceStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(replay_sender, "QUEUES_MAX", 7)
    with pytest.raises(AnswerError, match="topic New: with its 8 queues this replay has 8, more than 7; replay fewer"):
        run(BrokerStub({"New": 8}), [source])
    assert run(BrokerStub({"New": 7}), [source]).state.sent == {"T": COUNT}


def test_nobody_at_the_name_servers_address_is_an_error(source: SourceStore) -> None:
    with serving(lambda _request, _body: None) as address:
        pass
    replay = Replay(Cluster(address), ReplayJournal(None, {}), Selection())
    with pytest.raises(ConnectionLostError, match="cannot connect"):
        replay.run([source], lambda _done, _total: None)


@pytest.mark.parametrize("stop_at", [1, 2, 9, COUNT])
@pytest.mark.parametrize("stage", ["before", "after"])
def test_a_second_run_repeats_nothing(source: SourceStore, tmp_path: Path, stop_at: int, stage: str) -> None:
    """The first run ends at a message, and its journal is the one of the run's first line, as after kill -9."""
    stub, state = BrokerStub({"New": 2}), tmp_path / "state"

    def stop(number: int, _request: Request) -> bytes:
        if number == stop_at:
            raise OSError("the broker is gone")
        return b"go on"

    setattr(stub, stage, stop)
    with pytest.raises(ConnectionLostError):
        run(stub, [source], state, patience=0)
    lines = state.read_bytes().splitlines(keepends=True)
    state.write_bytes(b"".join(lines[:2]) + b'{"store":0,"next')
    setattr(stub, stage, lambda _number, _request: b"go on")
    replay = run(stub, [source], state)
    assert bodies(stub) == EXPECTED
    assert replay.state.sent == {"T": COUNT}
    before = stub.sends
    run(stub, [source], state)
    assert stub.sends == before


def test_stores_are_sent_one_after_the_other(source: SourceStore, tmp_path: Path) -> None:
    second = store_at(tmp_path / "second", [b"later"])
    stub = BrokerStub({"New": 2})
    run(stub, [source, second], tmp_path / "state")
    assert bodies(stub) == [*EXPECTED, b"later"]


def test_another_store_in_the_same_place_is_refused(source: SourceStore, tmp_path: Path) -> None:
    stub, state = BrokerStub({"New": 2}, lambda number, _request: None if number > 5 else b"go on"), tmp_path / "state"
    with pytest.raises(ConnectionLostError):
        run(stub, [source], state, patience=0)
    stub.before = lambda _number, _request: b"go on"
    other = store_at(tmp_path / "other", [b"%dx" % number for number in range(COUNT)])
    with pytest.raises(RefusedError, match="this is another store, or it has changed since"):
        run(stub, [other], state)
    assert len(stub.stored) == 5


def test_a_queue_that_lost_acknowledged_messages_ends_the_run(source: SourceStore, tmp_path: Path) -> None:
    stub, state = BrokerStub({"New": 1}, lambda number, _request: None if number > 5 else b"go on"), tmp_path / "state"
    with pytest.raises(ConnectionLostError):
        run(stub, [source], state, patience=0)
    del stub.raw["New", 0][3:]
    with pytest.raises(AnswerError, match="lost messages that it had acknowledged: queue 0 of topic New ends at 3"):
        run(stub, [source], state, patience=0)


def test_the_rate_is_kept(source: SourceStore) -> None:
    stub = BrokerStub({"New": 2})
    before = time.monotonic()
    with cluster_of(stub) as cluster, closing(ReplayJournal(None, {})) as journal:
        Replay(cluster, journal, Selection(renames={"T": "New"}), rate=100).run([source], lambda _done, _total: None)
    assert time.monotonic() - before >= (COUNT - 1) / 100


def test_what_the_replay_itself_sent_is_not_sent_again(tmp_path: Path) -> None:
    """The store is that of the broker to which it is replayed."""
    stub = BrokerStub({"T": 1})
    with cluster_of(stub) as cluster, closing(ReplayJournal(None, {})) as journal:
        with new_store(tmp_path / "live", RULES, WriterConfig(commitlog_file_size=65536)) as writer:
            sent = {"RMQTOOL_REPLAY": f"{journal.id}:0:0"}
            writer.put_all([Message(topic="T", body=b"old"), Message(topic="T", body=b"old", properties=sent)])
        source = SourceStore(survey_store(tmp_path / "live"), RULES, DueTimes())
        Replay(cluster, journal, Selection()).run([source], lambda _done, _total: None)
    assert bodies(stub) == [b"old"]
