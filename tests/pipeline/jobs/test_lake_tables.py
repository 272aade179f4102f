"""Tables of Delta and Iceberg over time: copies that are merged, maintenance between kills, catalogs in databases."""

from __future__ import annotations

import json
import re
import shutil
import sqlite3
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import pytest

import rmqtool
from rmqtool.fixtures.recipe import make_store
from rmqtool.fixtures.recipes import RECIPES
from rmqtool.pipeline.enums import Form
from rmqtool.pipeline.jobs.lakehouse import PACKAGES
from tests.commands.transcripts import rmqtool as command
from tests.pipeline.cluster import ROOT
from tests.pipeline.jobs import lake

pytestmark = [pytest.mark.spark, pytest.mark.slow]

FORMS: Final = ("delta", "iceberg")
SCRIPT: Final = ROOT / "packaging" / "lakehouse_maintenance.py"
REST: Final = Path(__file__).parent / "rest_catalog"
_SQL: Final = """
import json, sys
from pyspark.sql import SparkSession
from pyspark_rocketmq import register

settings, statements = json.load(sys.stdin)
builder = SparkSession.builder.master("local[2]")
for name, value in settings.items():
    builder = builder.config(name, value)
spark = register(builder.getOrCreate())
for statement in statements:
    rows = spark.sql(statement).collect()
    if statement.startswith("SELECT"):
        print("ROWS", json.dumps([row.asDict() for row in rows]))
"""


@pytest.fixture(scope="module")
def packages(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return lake.install_spark(tmp_path_factory.mktemp("lake"))


@pytest.fixture
def store(tmp_path: Path) -> Path:
    path = tmp_path / "store"
    make_store(RECIPES["basic"], path, "5.5.0")
    grow(path)
    return path


def grow(store: Path, *words: object) -> None:
    assert command("append", store, "--topic", "Audit", "--body", "more", "--count", "5", *words).code == 0


def export_here(store: Path, target: Path, form: str) -> None:
    words = ("--incremental", "--partition-by", "topic")
    assert command("export", store, "--to", target, "--format", form, *words).code == 0


def expected_of(store: Path) -> Counter[Any]:
    rows = rmqtool.open(store).messages(list(lake.COLUMNS)).read_all().to_pylist()
    return Counter((row["store"], row["physical_offset"]) for row in rows)


def rows_of(form: str, table: Path) -> Counter[Any]:
    return Counter((row["store"], row["physical_offset"]) for row in lake.ROWS[form](table))


def maintain(form: str, target: Path, packages: Path, *conf: str) -> None:
    """Run the line of the page; nothing old is kept."""
    page = (ROOT / "docs" / "spark.md").read_text("utf-8")
    [shown] = re.findall(r"^python (packaging/lakehouse_maintenance.py.*)", page, re.MULTILINE)
    shown = shown.replace("/lake ", f"{target} ").replace("delta", form).replace("--keep-days 7", "--keep-days 0")
    words = [word for setting in (*lake.settings(packages), *conf) for word in ("--conf", setting)]
    line = [sys.executable, str(ROOT / shown.split()[0]), *shown.split()[1:], *words]
    ran = subprocess.run(
        line, env=lake.environment(packages), capture_output=True, text=True, timeout=lake.DEADLINE_S, check=False
    )
    assert ran.returncode == 0, ran.stderr


def queried(packages: Path, conf: dict[str, str], statements: list[str]) -> list[list[dict[str, Any]]]:
    """Rows of each SELECT among some statements, which a session of its own runs."""
    settings = dict(setting.split("=", 1) for setting in lake.settings(packages)) | conf
    ran = subprocess.run(
        [sys.executable, "-c", _SQL],
        input=json.dumps([settings, statements]),
        env=lake.environment(packages),
        capture_output=True,
        text=True,
        timeout=lake.DEADLINE_S,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr
    return [json.loads(line[5:]) for line in ran.stdout.splitlines() if line.startswith("ROWS ")]


def merge_of_the_page() -> list[str]:
    page = (ROOT / "docs" / "spark.md").read_text("utf-8")
    blocks = re.findall(r"```sql\n(.*?)```", page, re.DOTALL)
    [block] = [block for block in blocks if "MERGE INTO" in block]
    view, table, *merge = block.replace(";\n", "\n;").split(";")
    return [view, table, *merge]


@pytest.mark.parametrize("form", FORMS)
def test_the_merge_of_the_page_keeps_each_message_once(packages: Path, tmp_path: Path, store: Path, form: str) -> None:
    """A store, its replica, messages that a producer sent again, and a store into which messages were replayed."""
    archive = tmp_path / "archive"
    master, replica, other = (archive / name / "store" for name in ("a", "b", "c"))
    for number in (1, 1, 2):
        grow(store, "--property", f"UNIQ_KEY=7F0000010000000000000000000000{number:02}")
    for path in (master, replica):
        shutil.copytree(store, path)
    raw = command("dump", store, "--raw", "--body", "base64", "--format", "jsonl").out
    lines = [line for line in raw.splitlines() if json.loads(line).get("topic") == "Audit"]
    (tmp_path / "replayed.jsonl").write_text("\n".join(lines) + "\n")
    assert command("append", other, "--create", "--from", tmp_path / "replayed.jsonl").code == 0
    rows = [row for path in (master, other) for row in rmqtool.open(path).business_messages().read_all().to_pylist()]
    keys = Counter((row["topic"], row["identity"]) for row in rows)
    assert max(keys.values()) > 2

    conf = {"spark.jars.packages": PACKAGES[Form(form)]["4.1"], "spark.sql.warehouse.dir": str(tmp_path / "warehouse")}
    first = []
    if form == "delta":
        conf["spark.sql.extensions"] = "io.delta.sql.DeltaSparkSessionExtension"
        conf["spark.sql.catalog.spark_catalog"] = "org.apache.spark.sql.delta.catalog.DeltaCatalog"
        first = ["CREATE DATABASE lake"]
    else:
        conf["spark.sql.extensions"] = "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions"
        conf["spark.sql.catalog.lake"] = "org.apache.iceberg.spark.SparkCatalog"
        conf |= {"spark.sql.catalog.lake.type": "hadoop", "spark.sql.catalog.lake.warehouse": str(tmp_path / "lake")}
    view, *statements = [
        statement.replace("/archive/", f"{archive}/").replace("USING delta", f"USING {form}")
        for statement in merge_of_the_page()
    ]
    counts = "SELECT topic, identity, count(*) AS copies FROM lake.messages GROUP BY topic, identity"
    again = view.replace("TEMPORARY", "OR REPLACE TEMPORARY")
    results = queried(packages, conf, [*first, view, *statements, counts, again, *statements, counts])
    for result in results:
        assert {(row["topic"], row["identity"]): row["copies"] for row in result} == dict.fromkeys(keys, 1)
    assert len(results) == 2


@pytest.mark.parametrize("form", FORMS)
def test_maintenance_leaves_each_message_once(packages: Path, tmp_path: Path, store: Path, form: str) -> None:
    """It comes upon a batch that a kill left without a note; then nothing but the table can say that it is there."""
    target = tmp_path / "lake"
    table = target / "messages"
    if form == "delta":
        export_here(store, target, form)
    else:
        lake.export(store, target, form, packages, script=lake.STAGED, code=9)
        assert not rows_of(form, table)
        lake.export(store, target, form, packages)
    assert rows_of(form, table) == expected_of(store)
    grow(store)
    lake.export(store, target, form, packages, script=lake.KILLED, code=9)
    assert rows_of(form, table) == expected_of(store)
    before = lake.data_files(form, table)

    maintain(form, target, packages)
    after = lake.data_files(form, table)
    assert len(after) < len(before)
    assert {path.name for path in table.rglob("*.parquet") if "_delta_log" not in path.parts} == after
    assert rows_of(form, table) == expected_of(store)

    grow(store)
    if form == "iceberg":
        lasting = "spark.sql.catalog.rmqtool.cache.expiration-interval-ms=-1"
        assert "written 2 times" in lake.export(store, target, form, packages, lasting, script=lake.REWRITTEN)
    else:
        lake.export(store, target, form, packages)
    assert rows_of(form, table) == expected_of(store)
    notes = sorted((target / "_rmqtool" / "messages" / "batches").iterdir())
    assert [json.loads(note.read_text())["rows"] for note in notes] == [expected_of(store).total() - 10, 5, 5]


def metadata_in(database: Path) -> Path:
    with sqlite3.connect(database) as opened:
        [(place,)] = opened.execute("SELECT metadata_location FROM iceberg_tables").fetchall()
    return Path(str(place).removeprefix("file:"))


def settings_of_the_page(kind: str) -> list[str]:
    """The settings that the page shows for a kind of catalog."""
    page = (ROOT / "docs" / "spark.md").read_text("utf-8")
    [line] = [line for line in page.splitlines() if line.startswith("rmqtool export") and f"type={kind}" in line]
    return re.findall(r"--conf (\S+)", line)


@pytest.fixture
def catalog(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[list[str]]:
    """Settings of the page, with a catalog that is there; both keep their tables in `catalog.db`."""
    settings, database = settings_of_the_page(request.param), str(tmp_path / "catalog.db")
    if request.param == "jdbc":
        yield [setting.replace("/lake/catalog.db", database) for setting in settings]
        return
    with rest_catalog(tmp_path, database, str(tmp_path / "warehouse")) as url:
        yield [re.sub(r"https://[^/]+/catalog", url, setting) for setting in settings]


@contextmanager
def rest_catalog(folder: Path, database: str, warehouse: str) -> Iterator[str]:
    """A server of Iceberg's REST protocol, with the servlet by which Iceberg tests its own client; its URL."""
    classpath = folder / "classpath"
    maven = ["mvn", "-q", "-B", "-f", str(REST / "pom.xml"), "dependency:build-classpath"]
    subprocess.run([*maven, f"-Dmdep.outputFile={classpath}"], check=True, timeout=lake.DEADLINE_S)
    line = ["java", "-cp", classpath.read_text(), str(REST / "RestCatalog.java"), database, warehouse]
    with subprocess.Popen(line, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as server:
        try:
            assert server.stdout is not None
            yield f"http://127.0.0.1:{int(server.stdout.readline())}"
        finally:
            server.kill()


@pytest.mark.parametrize("catalog", ["jdbc", "rest"], indirect=True)
def test_a_catalog_of_its_own(packages: Path, tmp_path: Path, store: Path, catalog: list[str]) -> None:
    """The settings of the page, with a kill and maintenance; neither without them nor from another target."""
    target, database = tmp_path / "lake", tmp_path / "catalog.db"
    is_jdbc = any("type=jdbc" in setting for setting in catalog)
    lake.export(store, target, "iceberg", packages, *catalog, script=lake.KILLED, code=9)
    maintain("iceberg", target, packages, *catalog)
    grow(store)
    lake.export(store, target, "iceberg", packages, *catalog)
    metadata = metadata_in(database)
    assert rows_of("iceberg", metadata) == expected_of(store)
    assert metadata.parents[3] == (target if is_jdbc else tmp_path / "warehouse")
    if is_jdbc:
        grow(store)
        refused = lake.export(store, target, "iceberg", packages, code=5)
        assert "there is no such table, but this target has exported 2 batches into it" in refused
        refused = lake.export(store, tmp_path / "other", "iceberg", packages, *catalog, code=5)
        assert "not written by the export of this target" in refused


def test_the_script_asks_for_the_packages_of_the_export() -> None:
    scope: dict[str, Any] = {"__name__": "script"}
    exec(compile(SCRIPT.read_text("utf-8"), SCRIPT, "exec"), scope)  # noqa: S102 - a script of ours
    assert {form: dict(PACKAGES[Form(form)]) for form in FORMS} == scope["PACKAGES"]
