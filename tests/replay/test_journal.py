"""The journal: the last whole line counts, one run at a time, and nothing else is taken for a journal."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from rmqtool.errors import RefusedError, UnreadableError, WriteError
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
