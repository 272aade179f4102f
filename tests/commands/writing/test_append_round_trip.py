"""A dump that is put again gives the log, the queues and the index of every healthy store back, byte for byte."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest

from tests.commands.transcripts import rmqtool
from tests.conftest import Unpacked
from tests.golden_stores import healthy_names, manifest

NOT_OURS = {
    "5.5.0-rocksdb-cq": "its queues are kept in RocksDB, which append does not write",
    "5.5.0-filler-min-zero": "its queues begin with filler where a broker lost them; ours hold every message",
    "4.9.7-filler-queue": "two of its queues were lost and rebuilt by a broker, behind filler",
    "5.5.0-filler-queue": "two of its queues were lost and rebuilt by a broker, behind filler",
    "4.9.7-slave-middle": "its last record is torn within the properties, and no message that was sent",
    "5.5.0-slave-middle": "its last record is torn within the properties, and no message that was sent",
}
"""Queues of these are not compared; their logs are, as far as they hold what somebody sent."""
TORN = {"4.9.7-slave-middle", "5.5.0-slave-middle"}
QUEUE_FOLDERS = ("consumequeue", "consumequeue_ext", "batchconsumequeue")
FILLER = struct.pack(">qiq", 0, 0x7FFFFFFF, 0)


def again(golden: Unpacked, name: str, folder: Path) -> tuple[Path, Path]:
    """The store, and what append makes of its dump."""
    dumped = rmqtool("dump", golden(name), "--raw", "--body", "base64", "--body-limit", 1 << 30, "--format", "jsonl")
    (folder / "rows.jsonl").write_text(dumped.out)
    said = manifest(name).config
    config = [
        f"{key}={str(value).lower()}" for key, value in said.items() if key not in ("topics", "brokerRole", "storeType")
    ]
    options = [word for setting in config if not setting.startswith("broker.") for word in ("--set", setting)]
    for topic, details in said.get("topics", {}).items():
        if details.get("attributes", {}).get("queue.type") == "BatchCQ":
            options += ["--batch-topic", topic]
    version = name.partition("-")[0]
    ran = rmqtool(
        "append", folder / "copy", "--create", *options, "--broker-version", version, "--from", folder / "rows.jsonl",
        "--format", "jsonl",
    )  # fmt: skip
    assert ran.code == 0, ran.err
    return golden(name), folder / "copy"


def contents(store: Path, folder: str) -> dict[str, bytes]:
    return {str(path.relative_to(store)): path.read_bytes() for path in (store / folder).rglob("*") if path.is_file()}


@pytest.mark.parametrize("name", [name for name in healthy_names() if "default-size" not in name])
def test_a_dump_gives_the_store_back(golden: Unpacked, tmp_path: Path, name: str) -> None:
    original, copy = again(golden, name, tmp_path)
    for folder in sorted({path.name for path in original.glob("commitlog*")}):
        if name in TORN:
            continue
        assert contents(copy, folder) == contents(original, folder)
    if name in NOT_OURS:
        return
    for folder in QUEUE_FOLDERS:
        ours, theirs = contents(copy, folder), contents(original, folder)
        if "expired" not in name:
            assert ours == theirs
            continue
        # Units of records that have expired are in no dump: filler, or no file at all, stands in their place.
        assert ours.keys() <= theirs.keys()
        for path, content in ours.items():
            begin = 0
            while content[begin : begin + 20] == FILLER:
                begin += 20
            assert content[begin:] == theirs[path][begin:], path
