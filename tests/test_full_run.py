"""The parts of the long run hold every test once, and the page keeps what other runs said."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests import full_run


def test_every_test_file_is_in_one_part() -> None:
    parts = [full_run.ROOT / part for part in full_run.parts()]
    for path in (full_run.ROOT / "tests").rglob("test_*.py"):
        assert len([part for part in parts if path == part or path.is_relative_to(part)]) == 1, path


def test_a_part_that_is_run_again_replaces_its_row(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(full_run, "PAGE", tmp_path / "page.md")
    for part, passed in (("tests/verify", 1), ("tests/scan", 20), ("tests/verify", 300), ("tests/gone", 7)):
        full_run.write_page([f"`{part}`", "abc", "2026-01-01", "1.5", str(passed), "0", "0", "2", "here"])
    page = full_run.PAGE.read_text("utf-8")
    assert "In all 320 passed, 0 failures, 0 errors, 4 skipped; 3 minutes." in page
    assert page.index("`tests/scan`") < page.index("`tests/verify`")
    assert "`tests/gone`" not in page
    lacking = page.partition("Not run yet: ")[2]
    assert "`tests/test_damage_matrix.py`" in lacking
    assert "`tests/verify`" not in lacking


def test_the_page_says_what_every_file_with_slow_tests_shows(request: pytest.FixtureRequest) -> None:
    if request.config.getoption("rewrite"):
        full_run.write_page()
    slow = full_run.slow_files()
    assert all(slow.values())
    assert full_run.PAGE.read_text("utf-8").endswith(full_run.slow_text(slow)), (
        "pytest --rewrite tests/test_full_run.py"
    )
