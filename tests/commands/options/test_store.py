"""What commands say of how a store was opened."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.commands.transcripts import rmqtool
from tests.conftest import Unpacked

NAME = "5.5.0-rocksdb-cq"
WARNING = "does not set storeType, so the broker keeps consume queues in files"


@pytest.mark.parametrize(
    ("name", "text", "is_warned"),
    [
        (NAME, "mappedFileSizeCommitLog=65536\n", True),
        (NAME, "mappedFileSizeCommitLog=65536\nstoreType=default\n", False),
        (NAME, "mappedFileSizeCommitLog=65536\nstoreType=defaultRocksDB\n", False),
        ("5.5.0-clean-basic", "mappedFileSizeCommitLog=65536\n", False),
    ],
)
def test_a_database_that_the_configuration_passes_over_is_named(
    golden: Unpacked, tmp_path: Path, name: str, text: str, *, is_warned: bool
) -> None:
    conf = tmp_path / "broker.conf"
    conf.write_text(text)
    ran = rmqtool("info", golden(name), "--broker-conf", conf)
    assert (WARNING in " ".join(ran.err.split())) is is_warned, ran.err


def test_without_a_configuration_the_files_tell(golden: Unpacked) -> None:
    ran = rmqtool("info", golden(NAME))
    assert (WARNING in ran.err, "in RocksDB" in ran.out) == (False, True)
