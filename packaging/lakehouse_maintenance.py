"""Maintains a table of `rmqtool export --incremental`: joins small files, and removes what readers no longer need.

    python packaging/lakehouse_maintenance.py --format delta --to /lake --table messages --keep-days 7

It needs pyspark alone, of a version that `PACKAGES` names, and takes the `--conf` of the export. What is younger than
`--keep-days` stays, so it may run beside exports and readers; with 0 only while none runs.
"""

from __future__ import annotations

import argparse
import sys
from datetime import UTC, datetime, timedelta

import pyspark
from pyspark.sql import SparkSession

PACKAGES = {
    "delta": {"4.1": "io.delta:delta-spark_4.1_2.13:4.4.0", "4.2": "io.delta:delta-spark_4.2_2.13:4.4.0"},
    "iceberg": {"4.1": "org.apache.iceberg:iceberg-spark-runtime-4.1_2.13:1.12.0"},
}
"""By the version of Spark."""
CATALOG = "spark.sql.catalog.rmqtool"
DAYS_CHECKED = 7
"""Delta removes nothing that is younger, unless a setting allows it."""
ORPHANS_DAYS_LEAST = 1.1
"""Iceberg removes no file without a snapshot that is younger than a day, for a commit may be about to name it."""


def settings(form: str, target: str, keep_days: float, given: dict[str, str]) -> dict[str, str]:
    """Settings of the session; those that are given count."""
    chosen = {"spark.app.name": "lakehouse maintenance", "spark.sql.session.timeZone": "UTC"}
    if form == "delta":
        chosen["spark.sql.extensions"] = "io.delta.sql.DeltaSparkSessionExtension"
        chosen["spark.sql.catalog.spark_catalog"] = "org.apache.spark.sql.delta.catalog.DeltaCatalog"
        if keep_days < DAYS_CHECKED:
            chosen["spark.databricks.delta.retentionDurationCheck.enabled"] = "false"
    else:
        chosen[CATALOG] = "org.apache.iceberg.spark.SparkCatalog"
        if not {f"{CATALOG}.type", f"{CATALOG}.catalog-impl"} & given.keys():
            chosen[f"{CATALOG}.type"] = "hadoop"
        else:
            chosen[f"{CATALOG}.default-namespace"] = "rmqtool"
        if given.get(f"{CATALOG}.type") != "rest":
            chosen[f"{CATALOG}.warehouse"] = target
    packages = given.get("spark.jars.packages", "")
    version = ".".join(pyspark.__version__.split(".")[:2])
    if form not in packages + given.get("spark.jars", ""):
        if version not in PACKAGES[form]:
            sys.exit(
                f"no package of {form} for Spark {version} is known: pip install 'pyspark=={max(PACKAGES[form])}.*'"
            )
        packages = ",".join(filter(None, (packages, PACKAGES[form][version])))
    return {**chosen, **given, "spark.jars.packages": packages}


def statements(form: str, target: str, table: str, namespace: str, keep_days: float) -> list[str]:
    """What is to be done, in this order, as SQL."""
    if form == "delta":
        place = f"delta.`{target}/{table}`"
        return [f"OPTIMIZE {place}", f"VACUUM {place} RETAIN {keep_days * 24:.0f} HOURS"]
    name = ".".join(f"`{part}`" for part in ("rmqtool", *filter(None, namespace.split(".")), table))
    now = datetime.now(UTC)
    oldest, orphans = (
        f"TIMESTAMP '{now - timedelta(days=days):%Y-%m-%d %H:%M:%S.%f}'"
        for days in (keep_days, max(keep_days, ORPHANS_DAYS_LEAST))
    )
    return [
        f"CALL rmqtool.system.rewrite_data_files(table => '{name}', options => map('min-input-files', '2'))",
        f"CALL rmqtool.system.expire_snapshots(table => '{name}', older_than => {oldest})",
        f"CALL rmqtool.system.remove_orphan_files(table => '{name}', older_than => {orphans})",
    ]


def main() -> None:
    """Run each statement, and print what it says."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--format", choices=list(PACKAGES), required=True)
    parser.add_argument("--to", required=True, help="the --to of the export, a directory or URL")
    parser.add_argument("--table", default="messages")
    parser.add_argument("--keep-days", type=float, default=7.0, help="older versions of the table go (default: 7)")
    parser.add_argument("--conf", action="append", default=[], metavar="K=V", help="a setting of Spark")
    asked = parser.parse_args()
    given = dict(setting.split("=", 1) for setting in asked.conf)
    builder = SparkSession.builder.master(given.get("spark.master", "local[*]"))
    for name, value in settings(asked.format, asked.to, asked.keep_days, given).items():
        builder = builder.config(name, value)
    session = builder.getOrCreate()
    namespace = session.conf.get(f"{CATALOG}.default-namespace", "") or ""
    for statement in statements(asked.format, asked.to.rstrip("/"), asked.table, namespace, asked.keep_days):
        rows = [row.asDict(recursive=True) for row in session.sql(statement).collect()]
        sys.stdout.write(f"{statement}\n  {rows[:1]}\n")
    session.stop()


if __name__ == "__main__":
    main()
