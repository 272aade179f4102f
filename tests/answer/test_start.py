"""Why brokers of each version do not start, and how often the store is asked for it."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from pathlib import Path

from rmqtool.answer.start import start_failures
from rmqtool.engine.rules.versions import rules_for
from rmqtool.fixtures.recipe import make_store
from rmqtool.fixtures.recipes import RECIPES
from rmqtool.store.directory import survey
from rmqtool.store.view import DirectoryView, Entry


class CountedView(DirectoryView):
    """Counts how often each directory is listed."""

    counts: Counter[str] = Counter()  # noqa: RUF012 - one store a test

    def list(self, path: str) -> list[Entry]:
        self.counts[path] += 1
        return super().list(path)


def test_a_directory_is_listed_once_for_all_versions(tmp_path: Path) -> None:
    make_store(RECIPES["basic"], tmp_path / "store", "5.5.0")
    last = max((tmp_path / "store/consumequeue").glob("*/*/*"))
    last.write_bytes(last.read_bytes() + b"\0")
    store = survey(DirectoryView(tmp_path / "store"))
    CountedView.counts.clear()
    failures = start_failures(replace(store, view=CountedView(tmp_path / "store")), rules_for("5.5.0"))
    assert set(failures) >= {"5.5.0", "5.3.3"}
    assert all(f"{last.relative_to(tmp_path / 'store')}: " in why for why in failures.values())
    assert CountedView.counts["consumequeue"] == 1
    assert CountedView.counts[str(last.parent.relative_to(tmp_path / "store"))] == 1


def test_no_version_is_asked_about_a_store_that_starts(tmp_path: Path) -> None:
    make_store(RECIPES["basic"], tmp_path / "store", "5.5.0")
    assert start_failures(survey(DirectoryView(tmp_path / "store")), rules_for("5.5.0")) == {}


def test_a_store_with_an_unfinished_repair_names_the_file_that_keeps_brokers_out(tmp_path: Path) -> None:
    make_store(RECIPES["basic"], tmp_path / "store", "5.5.0")
    (tmp_path / "store/commitlog/rmqtool-repair-in-progress").touch()
    why = set(start_failures(survey(DirectoryView(tmp_path / "store")), rules_for("5.5.0")).values())
    assert why == {"commitlog/rmqtool-repair-in-progress, which an unfinished repair has left"}
