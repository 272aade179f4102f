"""Exports into tables of Delta and Iceberg with a Spark that has packages for both, and what these tables hold."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from tests.pipeline.cluster import QUICK_JAVA, ROOT

DEADLINE_S: Final = 3600
SPARK: Final = "pyspark==4.1.*"
COLUMNS: Final = ("store", "physical_offset", "type")
KILLED: Final = """
import os, sys
from rmqtool.commands.app import run
from rmqtool.pipeline.jobs.target_files import LocalFiles

create = LocalFiles.create

def killed(files, place, text):
    if "/batches/" in place:
        os._exit(9)
    return create(files, place, text)

LocalFiles.create = killed
run(sys.argv[1:])
"""
"""Runs a command line that is killed between the commit of a batch and its note."""
STAGED: Final = """
import os, sys
from pyspark.sql.readwriter import DataFrameWriterV2
from rmqtool.commands.app import run

append = DataFrameWriterV2.append
DataFrameWriterV2.append = lambda writer: (append(writer), os._exit(9))
run(sys.argv[1:])
"""
"""Runs a command line that is killed when a batch for Iceberg is written, and not yet in the table."""
REWRITTEN: Final = """
import atexit, sys
from pyspark.sql.readwriter import DataFrameWriterV2
from rmqtool.commands.app import run

REWRITE = "CALL rmqtool.system.rewrite_data_files(table => 'messages', options => map('rewrite-all', 'true'))"
append, written = DataFrameWriterV2.append, []

def rewritten(writer):
    if not written:
        writer._spark.sql("REFRESH TABLE rmqtool.messages")
    append(writer)
    written.append(None if written else writer._spark.sql(REWRITE).collect())

DataFrameWriterV2.append = rewritten
atexit.register(lambda: sys.stderr.write(f"written {len(written)} times"))
run(sys.argv[1:])
"""
"""Runs a command line that finds the files of its Iceberg table rewritten, once it has written its batch.

Spark's cache has dropped the table before, as it does after a time, and holds another copy than the export.
"""


def install_spark(folder: Path, requirement: str = SPARK) -> Path:
    """A directory with a Spark for which both forms have packages; `RMQTOOL_LAKE` names one that is there."""
    kept = os.environ.get("RMQTOOL_LAKE")
    if kept:
        return Path(kept)
    command = [sys.executable, "-m", "pip", "install", "-q", "--no-deps", "--target", str(folder / "spark")]
    subprocess.run([*command, requirement], check=True, timeout=DEADLINE_S)
    return folder / "spark"


def settings(packages: Path) -> list[str]:
    """Settings of a small Spark with caches of its own.

    Spark takes a package from the cache of Maven, and fails where that has the package's POM alone.
    """
    caches = (f"spark.jars.ivy={packages}/ivy", f"spark.driver.extraJavaOptions=-Duser.home={packages} {QUICK_JAVA}")
    return ["spark.driver.memory=1g", "spark.sql.shuffle.partitions=2", *caches]


def environment(packages: Path) -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": f"{packages}:{ROOT}", "PYSPARK_PYTHON": sys.executable}


def command_line(
    stores: Path | str, target: Path, form: str, packages: Path, *conf: str, script: str | None = None
) -> list[str]:
    """An incremental export on Spark, or a script that runs it."""
    words = ["export", str(stores), "--to", str(target), "--format", form, "--incremental", "--master", "local[2]"]
    words += [word for setting in (*settings(packages), *conf) for word in ("--conf", setting)]
    program = ["-m", "rmqtool"] if script is None else ["-c", script]
    return [sys.executable, *program, *words]


def export(
    stores: Path | str, target: Path, form: str, packages: Path, *conf: str, script: str | None = None, code: int = 0
) -> str:
    """Run an export by topic, which must end with an exit code; what it wrote to its standard error."""
    ran = subprocess.run(
        [*command_line(stores, target, form, packages, *conf, script=script), "--partition-by", "topic"],
        env=environment(packages),
        capture_output=True,
        text=True,
        timeout=DEADLINE_S,
        check=False,
    )
    assert ran.returncode == code, ran.stderr
    return ran.stderr


def delta_rows(table: Path, columns: tuple[str, ...] = COLUMNS) -> Iterator[dict[str, Any]]:
    from deltalake import DeltaTable

    yield from DeltaTable(str(table)).to_pyarrow_table(columns=list(columns)).to_pylist()


def iceberg_rows(table: Path, columns: tuple[str, ...] = COLUMNS) -> Iterator[dict[str, Any]]:
    """Of a table in a Hadoop catalog: its directory; of another one its newest metadata file."""
    yield from iceberg_table(table).scan(selected_fields=columns).to_arrow().to_pylist()


def iceberg_table(table: Path) -> Any:
    from pyiceberg.table import StaticTable

    metadata = (table / "metadata").glob("v*.metadata.json")
    newest = max(metadata, key=lambda path: int(path.name[1:].split(".")[0]), default=table)
    return StaticTable.from_metadata(str(newest))


def data_files(form: str, table: Path) -> set[str]:
    """Names of the files of a table that hold its rows now."""
    from deltalake import DeltaTable

    if form == "delta":
        paths = DeltaTable(str(table)).file_uris()
    else:
        paths = [task.file.file_path for task in iceberg_table(table).scan().plan_files()]
    return {path.rpartition("/")[2] for path in paths}


ROWS: Final = {"delta": delta_rows, "iceberg": iceberg_rows}
