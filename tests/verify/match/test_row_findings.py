"""A log in which every body is bad: as many findings as records, and a bounded search for flipped bits."""

from __future__ import annotations

from pathlib import Path

import pytest

from rmqtool.fixtures.damages.target import DamageTarget
from rmqtool.fixtures.recipe import make_store
from rmqtool.fixtures.recipes import RECIPES
from rmqtool.store.directory import survey
from rmqtool.store.view import open_directory
from rmqtool.verify.match import row_findings
from tests.verify.stores import verified


def test_flipped_bits_are_looked_for_in_so_many_bodies_only(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    recipe = RECIPES["many-files"]
    make_store(recipe, tmp_path, "5.5.0")
    subject = DamageTarget(tmp_path, survey(open_directory(tmp_path), recipe.conf.settings()), 0)
    records = [record for record in subject.records if record.row.body_length]
    for record in records:
        subject.edit.flip_bit(record.path, record.body_position, 3)
    monkeypatch.setattr(row_findings, "FLIPS_MAX", 5)
    findings = verified(tmp_path, "5.5.0", settings=recipe.conf.settings())[1]
    bad = [found for found in findings if found.id == "commitlog.body-crc-mismatch"]
    assert len(bad) == len(records) > 100
    files = len({found.file for found in bad})
    assert 0 < sum(found.candidate is not None for found in bad) <= 5 * files
