"""By Spark Connect: the client has the libraries of `pyspark[connect]`, which the suite itself does not need."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from rmqtool.pipeline.tables.options import SourceOptions
from rmqtool.pipeline.tables.table import parts, read_part, table_of
from tests.conftest import Unpacked

pytestmark = [pytest.mark.spark, pytest.mark.slow]

ROOT = Path(__file__).resolve().parents[2]
CLIENT = ("grpcio", "grpcio-status", "googleapis-common-protos", "pandas<3")
SCRIPT = """
import sys
from pyspark.sql import SparkSession
from pyspark_rocketmq import findings, register

store = sys.argv[1]
spark = register(SparkSession.builder.remote("local[2]").getOrCreate())
frame = spark.read.format("rocketmq-store").load(store)
options = f"OPTIONS (path '{store}', table 'business_messages')"
spark.sql(f"CREATE TEMPORARY VIEW business USING `rocketmq-store` {options}")
counts = (frame.count(), findings(spark, store).count(), spark.table("business").count())
print(type(spark).__module__, *counts)
"""


def rows_of(store: Path, table: str) -> int:
    named = table_of(SourceOptions.parse({"path": str(store), "table": table}))
    return sum(batch.num_rows for part in parts(named) for batch in read_part(named, part))


def test_tables_and_findings_are_read_by_connect(golden: Unpacked, tmp_path: Path) -> None:
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-deps"]
    subprocess.run([*pip, "--target", tmp_path / "client", *CLIENT], check=True)
    path = [str(ROOT), str(tmp_path / "client"), os.environ.get("PYTHONPATH", "")]  # it may name another Spark
    store = golden("5.5.0-damage-flip-body-middle-file")
    ran = subprocess.run(
        [sys.executable, "-c", SCRIPT, store],
        env={**os.environ, "PYTHONPATH": ":".join(path), "PYSPARK_PYTHON": sys.executable},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr
    counts = [rows_of(store, table) for table in ("messages", "findings", "business_messages")]
    assert ran.stdout.split() == ["pyspark.sql.connect.session", *map(str, counts)]
