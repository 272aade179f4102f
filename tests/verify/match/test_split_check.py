"""A file that several threads check in parts gives the findings of a check in one, and is not read a second time."""

from __future__ import annotations

from pathlib import Path

import pytest
from _pytest.mark import ParameterSet

from rmqtool.findings.finding import Finding
from rmqtool.scan.blocks import last_data_end
from rmqtool.scan.split import PART_BYTES, LazySource, has_parts, splits_of, whole_file
from rmqtool.store.source import BytesSource, FileSource
from rmqtool.verify.match import split_check
from rmqtool.verify.survey.context import VerifyOptions
from rmqtool.verify.survey.result import Summary
from tests import golden_stores
from tests.conftest import Unpacked
from tests.repair.golden_repairs import settings_of
from tests.verify.stores import verified, writer_of


def _all_names() -> list[ParameterSet]:
    names = [*golden_stores.healthy_names(), *golden_stores.damaged_names(), *golden_stores.broker_names()]
    return [
        pytest.param(name, marks=() if name.startswith("5.5.0") and "damage" in name else pytest.mark.slow)
        for name in dict.fromkeys(names)
    ]


def _verified(path: Path, name: str, options: VerifyOptions) -> tuple[dict[str, object], list[Finding]]:
    summary, found = verified(path, writer_of(name), options, settings_of(name))
    return _comparable(summary), found


def _comparable(summary: Summary) -> dict[str, object]:
    return {**summary.as_json(), "begin": summary.log_begin, "end": summary.log_end}


@pytest.mark.parametrize("name", _all_names())
def test_parts_change_no_finding(golden: Unpacked, name: str) -> None:
    path = golden(name)
    whole = _verified(path, name, VerifyOptions(threads=1))
    for count in (1, 2, 7):
        assert _verified(path, name, VerifyOptions(threads=2, parts=count)) == whole


@pytest.mark.parametrize("name", ["4.9.7-large", "5.5.0-large", "5.5.0-many-files", "5.5.0-crashed"])
def test_sound_files_are_not_read_again(golden: Unpacked, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    again: list[str] = []
    checked = split_check.check_split
    monkeypatch.setattr(
        split_check, "check_split", lambda walk, context, path: again.append(path) or checked(walk, context, path)
    )
    summary, _ = verified(golden(name), writer_of(name), VerifyOptions(threads=2, parts=3), settings_of(name))
    assert again == []
    assert summary.record_count > 0


def test_a_file_is_cut_by_its_data_alone() -> None:
    content = b"x" * 1000 + bytes(9000)
    split = whole_file(BytesSource("log", content), 0, more_follows=False)
    cut = splits_of(split, 300)
    assert [(part.start, part.end) for part in cut] == [(0, 333), (333, 666), (666, 10_000)]
    assert [part.anchor for part in cut] == [False, True, True]
    assert last_data_end(split.source, 0, 10_000) == 1000
    assert splits_of(split, PART_BYTES) == [split]
    assert splits_of(split, 300, count=1) == [split]


def test_a_sparse_file_has_no_parts(tmp_path: Path) -> None:
    path = tmp_path / "log"
    with path.open("wb") as file:
        file.write(b"x" * 4096)
        file.truncate(16 << 20)
    split = whole_file(LazySource.look(lambda: FileSource.open(path)), 0, more_follows=False)
    assert not has_parts(split, 1 << 20)
    path.write_bytes(bytes(16 << 20))
    assert has_parts(split, 1 << 20)
    assert has_parts(split, 8 << 20)
    assert not has_parts(split, 9 << 20)


def test_each_part_opens_the_file_for_itself() -> None:
    source = LazySource.look(lambda: BytesSource("log", b"x" * 1000))
    cut = splits_of(whole_file(source, 0, more_follows=True), count=2)
    assert cut[0].source is not cut[1].source
    assert cut[0].source is not source
