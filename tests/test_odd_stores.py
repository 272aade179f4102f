"""Odd stores are judged as a real broker treats them: tests/golden/life/README.md says how that is."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tests.commands.transcripts import json_answer
from tests.odd_stores import LIFE_FOLDER, odd_names, unpack_odd


def test_each_odd_store_is_told_of() -> None:
    page = (LIFE_FOLDER / "README.md").read_text("utf-8")
    assert len(odd_names()) == 7
    assert [name for name in odd_names() if f"| {name}" not in page] == []


def ids(answer: dict[str, Any]) -> set[str]:
    """What is found, but for notes."""
    return {finding["id"] for finding in answer["findings"] if finding["severity"] != "note"}


def test_a_last_record_without_properties_is_counted_to_its_end(tmp_path: Path) -> None:
    store = unpack_odd("dledger-empty-properties", tmp_path)
    _, verified = json_answer("verify", store)
    assert (verified["summary"]["checked"]["records"], verified["summary"]["complete"]) == (10, True)
    assert ids(verified) == {"checkpoint.missing", "consumequeue.missing-queue"}  # a start dispatches the log again
