"""The journal: the last whole line counts, one run at a time, and nothing else is taken for a journal."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from rmqtool.errors import RefusedError, UnreadableError, WriteError
from rmqtool.replay import journal as replay_journal
from rmqtool.replay.journal import ReplayJournal, TargetQueue

REQUEST = {"stores": ["/s"], "topics": []}
QUEUE = TargetQueue("T", "broker-a", 3)


def test_what_was_saved_last_is_there_again(tmp_path: Path) -> None:
    path = tmp_path / "state"
    with ReplayJournal(path, REQUEST) as journal:
        assert not journal.was_there
        for number in (5, 9):
            journal.state.next_physical_offset = number
            journal.state.queues["T"] = [QUEUE]
            journal.state.ends[QUEUE] = number
            journal.state.sent["T"] += number
            journal.state.last_record = number, "digest"
            journal.save()
    with path.open("ab") as file:
        file.write(b'{"store":7,"next_phys')
    with ReplayJournal(path, REQUEST) as again:
        assert again.was_there
        assert (again.id, again.state) == (journal.id, journal.state)
        again.save()
    with ReplayJournal(path, REQUEST) as third:
        assert third.state == journal.state


def test_one_run_at_a_time(tmp_path: Path) -> None:
    with (
        ReplayJournal(tmp_path / "state", REQUEST),
        pytest.raises(RefusedError, match="another replay uses this state file"),
    ):
        ReplayJournal(tmp_path / "state", REQUEST)


def test_the_journal_of_another_replay_is_refused(tmp_path: Path) -> None:
    ReplayJournal(tmp_path / "state", REQUEST).close()
    with pytest.raises(RefusedError, match="the state file of another replay: topics differs"):
        ReplayJournal(tmp_path / "state", REQUEST | {"topics": ["A"]})


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"{",
        b'{"form',
        b'{"format"',
        b'{"format": "of another program", "rows": [1, 2]}',
        b"precious",
        b"precious\n",
        b"{}\n",
        b"[" * 9999 + b"\n",
        b'{"format":1}\n',
    ],
)
def test_another_file_is_not_taken_for_one_and_stays(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "state").write_bytes(content)
    with pytest.raises(RefusedError, match="not a state file of replay"):
        ReplayJournal(tmp_path / "state", REQUEST)
    assert (tmp_path / "state").read_bytes() == content


def test_a_link_to_a_journal_is_none(tmp_path: Path) -> None:
    ReplayJournal(tmp_path / "state", REQUEST).close()
    (tmp_path / "link").symlink_to(tmp_path / "state")
    with pytest.raises(RefusedError, match="a link"):
        ReplayJournal(tmp_path / "link", REQUEST)


@pytest.mark.parametrize(("cut", "error"), [(70, RefusedError), (None, UnreadableError)])
def test_a_journal_that_is_damaged_stays(tmp_path: Path, cut: int | None, error: type[Exception]) -> None:
    path = tmp_path / "state"
    ReplayJournal(path, REQUEST).close()
    content = path.read_bytes()[:cut] if cut else path.read_bytes().replace(b"}", b"]")
    path.write_bytes(content)
    with pytest.raises(error, match=r"is not whole|damaged"):
        ReplayJournal(path, REQUEST)
    assert path.read_bytes() == content


def test_a_journal_that_cannot_be_started_leaves_no_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(_descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", full)
        with pytest.raises(WriteError, match=r"(?i)no space left"):
            ReplayJournal(tmp_path / "state", REQUEST)
    assert list(tmp_path.iterdir()) == []
    ReplayJournal(tmp_path / "state", REQUEST).close()


def test_a_place_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    with pytest.raises(WriteError, match="no/such/state"):
        ReplayJournal(tmp_path / "no/such/state", REQUEST)


def large_journal(path: Path, topics: int = 3000) -> ReplayJournal:
    """That of a replay into many topics of 16 queues each, saved as a run does."""
    journal = ReplayJournal(path, REQUEST)
    for number in range(topics):
        queues = [TargetQueue(f"topic-{number}", f"broker-{queue_id % 2}", queue_id // 2) for queue_id in range(16)]
        journal.state.queues[f"topic-{number}"] = queues
        journal.state.ends |= dict.fromkeys(queues, 1000)
    journal.save()
    return journal


def advance(journal: ReplayJournal, number: int) -> None:
    """What a run does between two lines."""
    state = journal.state
    queue = state.queues[f"topic-{number % len(state.queues)}"][number % 16]
    state.ends[queue] += 1
    state.sent[queue.topic] += 1
    state.next_physical_offset, state.last_record = number * 1000, (number * 1000, "0" * 64)


def test_a_line_has_only_what_changed(tmp_path: Path) -> None:
    path = tmp_path / "state"
    with large_journal(path) as journal:
        before = path.stat().st_size
        assert before < 3_000_000
        for number in range(100):
            advance(journal, number)
            if number % 10 == 0:
                journal.state.refusals.append({"store": 0, "physical_offset": number, "topic": "T", "reason": "r" * 99})
                journal.state.not_sent["refused"] += 1
            journal.save()
        assert path.stat().st_size - before < 100 * 400
    with ReplayJournal(path, REQUEST) as again:
        assert again.state == journal.state


def test_a_state_file_does_not_grow_with_the_length_of_a_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, largest = tmp_path / "state", 0
    monkeypatch.setattr(replay_journal, "REWRITE_SIZE", 10_000)
    with large_journal(path, topics=4) as journal:
        path.chmod(0o640)
        for number in range(3000):
            advance(journal, number)
            journal.save()
            largest = max(largest, path.stat().st_size)
        with pytest.raises(RefusedError, match="another replay uses this state file"):
            ReplayJournal(path, REQUEST)
    assert largest < 12_000
    assert path.stat().st_mode & 0o777 == 0o640
    assert [entry.name for entry in tmp_path.iterdir()] == ["state"]
    with ReplayJournal(path, REQUEST) as again:
        assert (again.id, again.state) == (journal.id, journal.state)


def test_a_directory_without_room_for_a_second_file_ends_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "state"
    monkeypatch.setattr(replay_journal, "REWRITE_SIZE", 1000)

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    with large_journal(path, topics=4) as journal:
        monkeypatch.setattr(Path, "replace", full)
        for number in range(100):
            advance(journal, number)
            journal.save()
    assert [entry.name for entry in tmp_path.iterdir()] == ["state"]
    with ReplayJournal(path, REQUEST) as again:
        assert again.state == journal.state


def test_a_line_that_is_not_written_whole_is_no_part_of_a_later_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write, path = os.write, tmp_path / "state"

    def half(descriptor: int, data: bytes) -> int:
        if len(data) < 40:
            raise OSError(28, "No space left on device")
        return write(descriptor, data[: len(data) // 2])

    with large_journal(path, topics=2) as journal:
        advance(journal, 1)
        with monkeypatch.context() as patch:
            patch.setattr(os, "write", half)
            with pytest.raises(WriteError, match=r"(?i)no space left"):
                journal.save()
        journal.save()
    with ReplayJournal(path, REQUEST) as again:
        assert again.state == journal.state


def test_a_state_file_of_an_earlier_version_continues(tmp_path: Path) -> None:
    path = tmp_path / "state"
    line = '{"store":0,"next_physical_offset":%d,"last_record":null,"queues":{"T":[["T","broker-a",3]]},%s'
    rest = '"ends":[[["T","broker-a",3],%d]],"sent":{"T":2},"not_sent":{},"refusals":[],"is_complete":false}'
    header = '{"format":1,"id":"0123456789abcdef","request":{"stores":["/s"],"topics":[]}}'
    path.write_text("\n".join([header, line % (5, rest % 5), line % (9, rest % 7), '{"store":0']))
    for number in range(2):
        with ReplayJournal(path, REQUEST) as journal:
            assert (journal.id, journal.was_there) == ("0123456789abcdef", True)
            assert (journal.state.next_physical_offset, journal.state.ends) == (9 + number, {QUEUE: 7 + number})
            journal.state.ends[QUEUE] += 1
            journal.state.next_physical_offset += 1
            journal.save()
