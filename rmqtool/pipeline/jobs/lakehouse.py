"""Iceberg and Delta tables as targets: which package of Spark writes them, and how a batch is added once.

Each batch has a number, which goes into the table with its rows in one commit. A batch that is written again, since a
kill came before it was noted elsewhere, finds its number there.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from rmqtool.errors import UnsupportedError
from rmqtool.pipeline.enums import Form
from rmqtool.pipeline.jobs.target_files import TargetFiles

if TYPE_CHECKING:
    from pyarrow import RecordBatchReader
    from pyspark.sql import DataFrame

TABLE_FORMS: Final = (Form.ICEBERG, Form.DELTA)
CATALOG: Final = "rmqtool"
"""Of Iceberg; the tables are directories of the target."""
BATCH: Final = "rmqtool-batch"
"""Property of an Iceberg snapshot: the export's id and the batch's number."""
MANIFEST: Final = "rmqtool-manifest"
_PACKAGES: Final[Mapping[Form, Mapping[str, str]]] = {
    Form.ICEBERG: {"4.1": "org.apache.iceberg:iceberg-spark-runtime-4.1_2.13:1.12.0"},
    Form.DELTA: {
        "4.1": "io.delta:delta-spark_4.1_2.13:4.4.0",
        "4.2": "io.delta:delta-spark_4.2_2.13:4.4.0",
    },
}
"""By the version of Spark that a package was built for, oldest first; a newer Spark does not load it."""
_MARK: Final = {Form.ICEBERG: "iceberg", Form.DELTA: "delta"}
"""Part of the name of any package for the form, also one of the user's own."""


def table_settings(form: Form, target: str, given: Mapping[str, str]) -> dict[str, str]:
    """Settings with which a session writes tables of a form; those that are given go before them.

    Args:
        target: the directory of the tables, as Spark calls it.

    Raises:
        UnsupportedError: no package is known that this Spark can load.
    """
    if form not in TABLE_FORMS:
        return {}
    settings = {
        Form.ICEBERG: {
            f"spark.sql.catalog.{CATALOG}": "org.apache.iceberg.spark.SparkCatalog",
            f"spark.sql.catalog.{CATALOG}.type": "hadoop",
            f"spark.sql.catalog.{CATALOG}.warehouse": target,
        },
        Form.DELTA: {
            "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
            "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
        },
    }[form]
    packages = given.get("spark.jars.packages", "")
    if _MARK[form] not in packages + given.get("spark.jars", ""):
        import pyspark

        by_version = _PACKAGES[form]
        version, newest = ".".join(pyspark.__version__.split(".")[:2]), list(by_version)[-1]
        if version not in by_version:
            raise UnsupportedError(
                f"there is no package of {form.value} for Spark {version} that is known to work: use pyspark {newest}, "
                "or name a package with --conf spark.jars.packages=..."
            )
        package = by_version[version]
        settings["spark.jars.packages"] = ",".join(filter(None, (packages, package)))
    return {name: value for name, value in settings.items() if name not in given or name == "spark.jars.packages"}


@dataclass(frozen=True)
class LakeTable:
    """One table of a target.

    Attributes:
        place: its directory, as `files` call it.
        name: in the catalog.
        export_id: tells batches of this export from those of others.
    """

    form: Form
    files: TargetFiles
    place: str
    name: str
    partition_by: tuple[str, ...]
    export_id: str

    def append(self, rows: DataFrame, number: int, manifest: Mapping[str, Any]) -> int:
        """Add the rows of a batch, if they are not there yet; how many were added.

        Args:
            manifest: what went in; kept with the commit.
        """
        if self.form is Form.DELTA:  # which keeps the last number of each writer, and leaves out one that it has had
            writer = rows.hint("rebalance", *self.partition_by).write.format("delta").mode("append")
            writer = writer.partitionBy(*self.partition_by).option("mergeSchema", "true")
            writer = writer.option("txnAppId", self.export_id).option("txnVersion", number)
            writer.option("userMetadata", json.dumps(manifest)).save(self.files.spark_path(self.place))
            return self._added_to_delta(number) or 0
        # Iceberg brings the rows of a partition together by itself.
        session, table = rows.sparkSession, f"{CATALOG}.{self.name}"
        columns = ", ".join(f"`{column.name}` {column.dataType.simpleString()}" for column in rows.schema)
        partitions = f" PARTITIONED BY ({', '.join(f'`{name}`' for name in self.partition_by)})"
        session.sql(
            f"CREATE TABLE IF NOT EXISTS {table} ({columns}) USING iceberg{partitions if self.partition_by else ''}"
        )
        mark = f"{self.export_id}/{number}"
        if mark not in self._added_to_iceberg(session, table):
            appender = rows.writeTo(table).option(f"snapshot-property.{BATCH}", mark)
            appender.option(f"snapshot-property.{MANIFEST}", json.dumps(manifest)).append()
        return self._added_to_iceberg(session, table).get(mark, 0)

    def append_here(self, rows: RecordBatchReader, number: int, manifest: Mapping[str, Any]) -> int:
        """Add the rows of a batch to a Delta table without Spark, if they are not there yet; how many were added."""
        from rmqtool.pipeline.jobs.in_process import append_delta

        def is_there() -> bool:
            return self._added_to_delta(number) is not None

        if not is_there():
            append_delta(rows, self.partition_by, self.place, self.export_id, number, manifest, is_there)
        return self._added_to_delta(number) or 0

    def _added_to_delta(self, number: int) -> int | None:
        """Rows of the commit with one of our numbers, by its file in the table's log, as in Delta's protocol."""
        log = f"{self.place}/_delta_log"
        commits = [name for name in self.files.sizes(log) if name.endswith(".json") and "/" not in name]
        for name in sorted(commits, reverse=True):
            actions = [json.loads(line) for line in (self.files.read(f"{log}/{name}") or "").splitlines()]
            marks = [action["txn"] for action in actions if "txn" in action]
            if any(mark.get("appId") == self.export_id and mark.get("version") == number for mark in marks):
                written = [json.loads(action["add"].get("stats") or "{}") for action in actions if "add" in action]
                return sum(int(statistics.get("numRecords", 0)) for statistics in written)
        return None

    def _added_to_iceberg(self, session: Any, table: str) -> dict[str, int]:
        """Rows of each snapshot of an export, by the mark of its batch."""
        summaries = [row["summary"] for row in session.table(f"{table}.snapshots").select("summary").collect()]
        return {summary[BATCH]: int(summary.get("added-records", 0)) for summary in summaries if BATCH in summary}
