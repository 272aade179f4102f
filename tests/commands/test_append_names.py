"""`append` to a store in which files of the log have other names than brokers give them."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.broker.files import snapshot
from tests.commands.test_append import create
from tests.commands.transcripts import rmqtool


@pytest.mark.parametrize("name", ["0", "65536", f"{0:019d}"])
def test_a_log_file_whose_name_has_fewer_digits_is_refused(tmp_path: Path, name: str) -> None:
    """Brokers load such a file: the next record belongs after its records, and in no new file at offset 0."""
    store = tmp_path / "s"
    create(store, "--body", "one")
    file = store / "commitlog" / f"{0:020d}"
    if int(name):
        shutil.copy(file, file.with_name(name))
    else:
        file.rename(file.with_name(name))
    before = snapshot(store)
    ran = rmqtool("append", store, "--topic", "orders", "--body", "two")
    assert ran.code == 5
    assert f"commitlog/{name}: " in ran.err
    assert snapshot(store) == before
