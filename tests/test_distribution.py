"""How tests are distributed: what shares a session of Spark is named, and long files begin first."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.distribution import LONGEST, ROOT, SPARK_FILES, sort_files


def test_files_that_are_named_are_there() -> None:
    assert [name for name in (*SPARK_FILES, *LONGEST) if not (ROOT / name).is_file()] == []


def test_every_file_that_shares_the_session_of_spark_is_named(request: pytest.FixtureRequest) -> None:
    items = [item for item in request.session.items if "spark" in getattr(item, "fixturenames", ())]
    assert {item.path.relative_to(ROOT).as_posix() for item in items} <= set(SPARK_FILES)


def test_spark_begins_first_and_short_files_last() -> None:
    counts = {LONGEST[1]: 2, SPARK_FILES[0]: 1, "tests/broker/test_a.py": 1, "tests/a.py": 1, "tests/b.py": 3}
    items: list[Any] = [SimpleNamespace(path=ROOT / name) for name, count in counts.items() for _ in range(count)]
    sort_files(items)
    order = list(dict.fromkeys(Path(item.path).relative_to(ROOT).as_posix() for item in items))
    assert order == [SPARK_FILES[0], LONGEST[1], "tests/broker/test_a.py", "tests/b.py", "tests/a.py"]
