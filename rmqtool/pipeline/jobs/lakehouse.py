"""Iceberg and Delta tables as targets: which package of Spark writes them, and how a batch is added once.

Each batch has a number, which goes into the table with its rows in one commit. A batch that is written again, since a
kill came before it was noted elsewhere, finds its number there.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from rmqtool.errors import RefusedError, UnsupportedError, WriteError
from rmqtool.pipeline.enums import Form
from rmqtool.pipeline.jobs.target_files import TargetFiles

if TYPE_CHECKING:
    from pyarrow import RecordBatchReader
    from pyspark.sql import DataFrame, SparkSession

TABLE_FORMS: Final = (Form.ICEBERG, Form.DELTA)
CATALOG: Final = "rmqtool"
"""Of Iceberg; unless settings name another one, the tables are directories of the target."""
_SETTING: Final = f"spark.sql.catalog.{CATALOG}"
NAMESPACE: Final = f"{_SETTING}.default-namespace"
"""Setting: where a catalog that is not the target itself has the tables."""
EXPORT: Final = "rmqtool-export"
"""Property of an Iceberg table: the export's id."""
BATCH: Final = "rmqtool-batch"
"""Property of an Iceberg table: the export's id and the number of the last batch."""
BATCH_ROWS: Final = "rmqtool-batch-rows"
MANIFEST: Final = "rmqtool-manifest"
BRANCH: Final = "rmqtool-"
"""First part of the name of a branch that holds a batch before the table does."""
ATTEMPTS: Final = 3
"""How often a batch is written to an Iceberg table to which others write meanwhile."""
PACKAGES: Final[Mapping[Form, Mapping[str, str]]] = {
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
        Form.ICEBERG: _iceberg_settings(target, given),
        Form.DELTA: {
            "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
            "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
        },
    }[form]
    packages = given.get("spark.jars.packages", "")
    if _MARK[form] not in packages + given.get("spark.jars", ""):
        import pyspark

        by_version = PACKAGES[form]
        version, newest = ".".join(pyspark.__version__.split(".")[:2]), list(by_version)[-1]
        if version not in by_version:
            raise UnsupportedError(
                f"there is no package of {form.value} for Spark {version} that is known to work: use pyspark {newest}, "
                "or name a package with --conf spark.jars.packages=..."
            )
        package = by_version[version]
        settings["spark.jars.packages"] = ",".join(filter(None, (packages, package)))
    return {name: value for name, value in settings.items() if name not in given or name == "spark.jars.packages"}


def _iceberg_settings(target: str, given: Mapping[str, str]) -> dict[str, str]:
    kind = given.get(f"{_SETTING}.catalog-impl", given.get(f"{_SETTING}.type", "hadoop"))
    settings = {_SETTING: "org.apache.iceberg.spark.SparkCatalog"}
    if f"{_SETTING}.catalog-impl" not in given:
        settings[f"{_SETTING}.type"] = kind
    if kind != "hadoop":
        settings[NAMESPACE] = "rmqtool"
    if not kind.rpartition(".")[2].lower().startswith("rest"):  # whose server knows its warehouses by name
        settings[f"{_SETTING}.warehouse"] = target
    return settings


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
        return self._append_to_iceberg(rows, number, manifest)

    def append_here(self, rows: RecordBatchReader, number: int, manifest: Mapping[str, Any]) -> int:
        """Add the rows of a batch to a Delta table without Spark, if they are not there yet; how many were added."""
        from rmqtool.pipeline.jobs.in_process import append_delta, last_delta_batch

        def is_there() -> bool:
            last = last_delta_batch(self.place, self.export_id)
            return last is not None and last >= number

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

    def _append_to_iceberg(self, rows: DataFrame, number: int, manifest: Mapping[str, Any]) -> int:
        """Write the rows to a branch, then move the table there in one commit with the batch's number.

        The number is a property of the table, for maintenance removes snapshots. The commit fails where anybody has
        written to the table since the branch was made, also another run with the same batch; then the rows are written
        again.
        """
        from pyspark.errors import IllegalArgumentException

        session, reason = rows.sparkSession, None
        name = self._iceberg_name(session)
        table = self._open_iceberg(rows, name, number)
        for _ in range(ATTEMPTS):
            added = self._added_to_iceberg(session, table, name, number)
            if added is not None:
                return added
            branch = f"{BRANCH}{uuid.uuid4().hex}"
            for left in [str(ref) for ref in table.refs() if str(ref).startswith(BRANCH)]:
                table.manageSnapshots().removeBranch(left).commit()
            table.manageSnapshots().createBranch(branch).commit()
            session.sql(f"REFRESH TABLE {name}")  # Iceberg's cache may hold a copy that has no such branch
            # Iceberg brings the rows of a partition together by itself.
            appender = rows.writeTo(f"{name}.`branch_{branch}`")
            appender.option(f"snapshot-property.{MANIFEST}", json.dumps(manifest)).append()
            table.refresh()
            added = int(table.snapshot(branch).summary().get("added-records") or 0)
            commit = table.newTransaction()
            commit.updateProperties().set(BATCH, f"{self.export_id}/{number}").set(BATCH_ROWS, str(added)).commit()
            try:
                commit.manageSnapshots().fastForwardBranch("main", branch).removeBranch(branch).commit()
                commit.commitTransaction()
            except IllegalArgumentException as error:  # the table is no longer what the branch began with
                reason = error
                table.refresh()
            else:
                return added
        raise WriteError(f"{name}: others write to this table all the time; run this export again") from reason

    def _iceberg_name(self, session: SparkSession) -> str:
        namespace = session.conf.get(NAMESPACE, "") or ""
        return ".".join([CATALOG, *(f"`{part}`" for part in [*filter(None, namespace.split(".")), self.name])])

    def _open_iceberg(self, rows: DataFrame, name: str, number: int) -> Any:
        """Java's object of the table, which the first batch creates.

        Raises:
            RefusedError: the table is gone, or of somebody else.
        """
        from pyspark.errors import AnalysisException

        session = rows.sparkSession
        if number == 0:
            if (parents := name.rpartition(".")[0]) != CATALOG:
                session.sql(f"CREATE NAMESPACE IF NOT EXISTS {parents}")
            columns = ", ".join(f"`{column.name}` {column.dataType.simpleString()}" for column in rows.schema)
            partitions = f" PARTITIONED BY ({', '.join(f'`{column}`' for column in self.partition_by)})"
            session.sql(
                f"CREATE TABLE IF NOT EXISTS {name} ({columns}) USING iceberg{partitions if self.partition_by else ''} "
                f"TBLPROPERTIES ('{EXPORT}' = '{self.export_id}')"
            )
        java: Any = session._jvm  # noqa: SLF001 - Spark's SQL has no commit of several changes
        try:
            of_iceberg = java.org.apache.iceberg.spark.Spark3Util
            table = of_iceberg.loadIcebergTable(session._jsparkSession, name)  # noqa: SLF001
        except AnalysisException as error:
            raise RefusedError(
                f"{name}: there is no such table, but this target has exported {number} batches into it; if it is in "
                f"another catalog, run the export with the settings {_SETTING}.... that it had before"
            ) from error
        table.refresh()
        # In the catalog at the target the directory says whose the table is; rmqtool 0.3 set no property there.
        owner = table.properties().get(EXPORT) or (self.export_id if name.count(".") == 1 else None)
        if owner != self.export_id:
            raise RefusedError(
                f"{name}: is there, and not written by the export of this target; choose another namespace with "
                f"--conf {NAMESPACE}=NAME"
            )
        return table

    def _added_to_iceberg(self, session: SparkSession, table: Any, name: str, number: int) -> int | None:
        """Rows of a batch that is there; None where it is not."""
        export_id, _, last = str(table.properties().get(BATCH) or "").rpartition("/")
        if export_id == self.export_id and int(last) >= number:
            return int(table.properties().get(BATCH_ROWS) or 0) if int(last) == number else 0
        # rmqtool 0.3 noted it in the snapshot alone; what lies in a branch has no such note.
        mark = f"{self.export_id}/{number}"
        summaries = [row["summary"] for row in session.table(f"{name}.snapshots").select("summary").collect()]
        return next((int(one.get("added-records", 0)) for one in summaries if one.get(BATCH) == mark), None)
