"""An index whose slot count nobody knows is a finding; one of another length is checked as a broker would read it."""

from __future__ import annotations

import os
import random
from pathlib import Path

import pytest

from benchmarks.stores import write_store
from rmqtool.findings.account import Account
from rmqtool.repair.machine.digest import BuiltFile
from rmqtool.store.directory import Settings, survey
from rmqtool.store.view import open_directory
from rmqtool.verify.survey.index_map import IndexPass
from tests.commands.transcripts import rmqtool
from tests.conftest import Unpacked
from tests.verify.stores import above_note, verified

NAME = "5.5.0-clean-basic"


def test_an_index_of_unknown_slot_count_is_a_finding(golden_copy: Unpacked) -> None:
    path = golden_copy(NAME)
    whole, found = verified(path, "5.5.0")
    assert whole.complete
    assert whole.left_out_bytes == 0
    files = sorted((path / "index").iterdir())
    for file in files:
        file.write_bytes(random.Random(7).randbytes(file.stat().st_size))
    summary, found = verified(path, "5.5.0")
    assert not summary.complete
    assert summary.left_out_bytes == sum(file.stat().st_size for file in files)
    assert above_note(found) == {"index.unknown-slot-count": len(files)}
    ran = rmqtool("verify", path, "--broker-version", "5.5.0")
    assert ran.code == 3
    assert "--index-slots" in ran.err
    assert "not all of the store was checked" in " ".join(ran.out.split())


def test_an_empty_index_is_checked_without_its_slot_count(golden_copy: Unpacked) -> None:
    path = golden_copy(NAME)
    for file in (path / "index").iterdir():
        file.write_bytes(bytes(file.stat().st_size))
    summary, found = verified(path, "5.5.0")
    assert summary.complete
    # A broker makes the first file before it has a key, and the further ones with their first entry.
    further = len(list((path / "index").iterdir())) - 1
    assert further > 0
    assert above_note(found) == {"index.missing-key": 1, "index.zero-file": further}


@pytest.mark.parametrize("more", [-1, 1, 20, 4096])
def test_a_length_that_loses_no_entry_is_a_note(golden_copy: Unpacked, more: int) -> None:
    """Brokers lengthen a short file with zeros and use the first part of a long one (tests/broker)."""
    path = golden_copy(NAME)
    last = max((path / "index").iterdir())
    os.truncate(last, last.stat().st_size + more)
    summary, found = verified(path, "5.5.0")
    assert summary.complete
    assert summary.findings["index.wrong-file-size"] == 1
    assert above_note(found) == {}


@pytest.mark.parametrize("more", [-1, 1])
def test_files_of_a_length_that_nothing_explains_are_checked(golden_copy: Unpacked, more: int) -> None:
    path = golden_copy(NAME)
    files = sorted((path / "index").iterdir())
    for file in files:
        os.truncate(file, file.stat().st_size + more)
    summary, found = verified(path, "5.5.0")
    assert summary.complete
    assert summary.findings["index.wrong-file-size"] == len(files)
    # All but the last file are full, so a byte less is a part of an entry.
    full = len(files) - 1
    assert above_note(found) == ({"index.bad-header": full, "index.missing-key": full} if more < 0 else {})


def test_a_file_is_read_in_its_order(tmp_path: Path) -> None:
    """The check of a plan so computes the digest of a file that was built, and nobody reads it once more for that."""
    slots = 50_000
    write_store(tmp_path / "store", 6_000, 100, 4 << 20, index_slot_count=slots)
    (entry,) = survey(open_directory(tmp_path / "store"), Settings(index_slot_count=slots)).index_files
    built = BuiltFile.whole(tmp_path / "store" / entry.path)
    assert IndexPass(entry, slots, None, Account()).run(lambda _path: built.open()) is not None
    assert built.known_digest is not None
