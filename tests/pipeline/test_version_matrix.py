"""The versions that docs/spark.md claims, each installed, and each cell of its table run by the tests that it names."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest

from rmqtool.pipeline.enums import Form
from rmqtool.pipeline.jobs.lakehouse import PACKAGES
from tests.pipeline.cluster import ROOT
from tests.pipeline.jobs import lake

pytestmark = [pytest.mark.spark, pytest.mark.slow]

TESTS: Final = {
    "tables": ["tests/pipeline/test_source.py", "tests/pipeline/test_store_sink.py"],
    "streams": ["tests/pipeline/test_stream.py"],
    "Connect": ["tests/pipeline/test_connect.py"],
    "Delta": ["tests/pipeline/jobs/test_lake_tables.py", "-k", "leaves and delta"],
    "Iceberg": ["tests/pipeline/jobs/test_lake_tables.py", "-k", "leaves and iceberg"],
}
"""What runs for a column of the page's table."""
SOCKETS_LEFT: Final = ["-W", "ignore::ResourceWarning", "-W", "ignore::pytest.PytestUnraisableExceptionWarning"]
"""pyspark 4.1 leaves its sockets to the garbage collector."""


def claimed() -> dict[str, dict[str, str]]:
    """The table of the page: by the version of pyspark and the column."""
    page = (ROOT / "docs" / "spark.md").read_text("utf-8")
    [block] = re.findall(r"^(\| pyspark \|.*?)\n\n", page, re.DOTALL | re.MULTILINE)
    header, _, *rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in block.splitlines()]
    return {row[0]: dict(zip(header[1:], row[1:], strict=True)) for row in rows}


CELLS: Final = [(version, kind) for version, cells in claimed().items() for kind, cell in cells.items() if cell != "-"]


def test_the_page_names_each_package_and_no_other() -> None:
    for version, cells in claimed().items():
        for form, kind in ((Form.DELTA, "Delta"), (Form.ICEBERG, "Iceberg")):
            assert cells[kind] == PACKAGES[form].get(version, "-").rpartition(":")[2], (version, kind)
        assert set(cells) == set(TESTS)


@pytest.fixture(scope="module")
def sparks(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where each version is installed once; `RMQTOOL_SPARKS` names a directory that is kept."""
    kept = os.environ.get("RMQTOOL_SPARKS")
    return Path(kept) if kept else tmp_path_factory.mktemp("sparks")


@pytest.mark.parametrize(("version", "kind"), CELLS)
def test_what_the_page_claims_works(sparks: Path, version: str, kind: str) -> None:
    folder = sparks / version
    if not (folder / "spark").exists():
        lake.install_spark(folder, f"pyspark=={version}.*")
    ran = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-m", "", *SOCKETS_LEFT, "-p", "no:cacheprovider", *TESTS[kind]],
        env={**os.environ, "PYTHONPATH": f"{folder / 'spark'}:{ROOT}", "RMQTOOL_LAKE": str(folder / "spark")},
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=lake.DEADLINE_S,
        check=False,
    )
    assert ran.returncode == 0, ran.stdout[-4_000:]
    assert " passed" in ran.stdout
