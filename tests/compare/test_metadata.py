"""Epochs of controller mode in a comparison: entry by entry, and where a slave truncates its log."""

from __future__ import annotations

import json
from pathlib import Path

from rmqtool.compare.metadata import StoreMetadata, epochs_agree
from rmqtool.formats.controller import EPOCHS
from tests.commands.transcripts import rmqtool
from tests.conftest import Unpacked
from tests.formats.epochs import epochs_text

NAME = "5.5.0-clean-basic"


def compared(a: Path, *other: object) -> dict[str, object]:
    found = json.loads(rmqtool("diff", a, *other, "--format", "json").out)
    return {key: found[key] for key in ("equal", "epochs_agree_until", "config_difference_count", "verdict")}


def test_epochs_are_compared_with_stores_and_manifests(golden: Unpacked, golden_copy: Unpacked, tmp_path: Path) -> None:
    store = golden_copy(NAME)
    (store / EPOCHS).write_text(epochs_text((1, 0), (2, 1000), (5, 4000)))
    other = tmp_path / "other"
    other.symlink_to(golden(NAME))
    assert compared(store, other)["epochs_agree_until"] is None
    (tmp_path / "slave").mkdir()
    slave = tmp_path / "slave"
    for entry in store.iterdir():
        if entry.name != EPOCHS:
            (slave / entry.name).symlink_to(entry)
    (slave / EPOCHS).write_text(epochs_text((1, 0), (2, 1000), (3, 3000)))
    expected = {
        "equal": False, "epochs_agree_until": {"physical_offset": 3000}, "config_difference_count": 2,
        "verdict": "inconsistent",
    }  # fmt: skip
    assert compared(store, slave) == expected
    text = " ".join(rmqtool("diff", store, slave).out.split())
    assert "a slave truncates its log at 3000; as a slave A would lose" in text
    assert rmqtool("diff", "--make-manifest", tmp_path / "m", slave).code == 0
    assert compared(store, "--manifest", tmp_path / "m") == expected
    (slave / EPOCHS).write_text(epochs_text((1, 0), (2, 1000), (5, 4000), crc=0))
    assert compared(store, slave)["verdict"] == "ok"


def test_texts_of_a_manifest_that_are_no_numbers_are_no_epochs() -> None:
    sides = [
        StoreMetadata(config={(EPOCHS, "epochs", epoch): start})
        for epoch, start in (("1", "[]"), ("x", "5"), ("1", "9" * 5000), ("1", "7"))
    ]
    assert [epochs_agree(side, sides[-1], 10, 10) for side in sides] == [None, None, None, {"physical_offset": 10}]
