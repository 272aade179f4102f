"""What docs/spark.md shows first works as written in a script, a notebook and cron, with no environment activated."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pyspark
import pytest

from tests.conftest import Unpacked
from tests.pipeline.cluster import QUICK_JAVA
from tests.pipeline.stores import dump_rows

pytestmark = pytest.mark.spark

ROOT = Path(__file__).resolve().parents[2]
PATH = "/usr/bin:/bin"


def ran_by_cron(folder: Path, script: str) -> str:
    """What a script prints that runs with the PATH of cron, on which there is another Python, or none."""
    (folder / "script.py").write_text(script)
    java = shutil.which("java")
    assert java is not None
    ran = subprocess.run(
        [sys.executable, folder / "script.py"],
        env={
            "PATH": PATH,
            "PYTHONPATH": str(ROOT),
            "HOME": str(folder),
            "JAVA_HOME": str(Path(java).resolve().parents[1]),
            "JDK_JAVA_OPTIONS": QUICK_JAVA,
        },
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr
    return ran.stdout


def first_python_of(page: str) -> str:
    block = re.search(r"```python\n(.*?)```", (ROOT / "docs" / page).read_text("utf-8"), re.DOTALL)
    assert block is not None
    return block[1]


def test_the_first_lines_of_the_page_work(golden: Unpacked, tmp_path: Path) -> None:
    store = golden("5.5.0-damage-flip-body-middle-file")
    (tmp_path / "archive" / "a").mkdir(parents=True)
    (tmp_path / "archive" / "a" / "store").symlink_to(store)
    script = first_python_of("spark.md").replace("/home/rocketmq/store", str(store)).replace("'Orders'", "'Audit'")
    out = ran_by_cron(tmp_path, script.replace("/archive/", f"{tmp_path}/archive/"))
    assert "|queue_id|count|" in out
    assert re.search(r"\|commitlog.body-cr[a-z.-]* *\| *error\| *1\|", out)


@pytest.mark.slow
def test_the_notebook_runs(tmp_path: Path) -> None:
    notebook = json.loads((ROOT / "docs" / "spark.ipynb").read_text("utf-8"))
    cells = ["".join(cell["source"]) for cell in notebook["cells"] if cell["cell_type"] == "code"]
    assert all(not cell["outputs"] for cell in notebook["cells"] if cell["cell_type"] == "code")
    out = ran_by_cron(tmp_path, "\n".join(cells))
    assert "topic|queue_id|queue_offset|" in out
    assert "|messages|" in out
    first, more, none = [json.loads(line)["rows"] for line in out.splitlines() if line.startswith('{"to"')]
    assert (first > 0, more, none) == (True, 5, 0)
    total = first + more
    assert re.search(rf"\|rows\|business_messages\|\n.*\n\|\s*{total}\|\s*{total}\|\n", out)


SQL = "CREATE TEMPORARY VIEW v USING `rocketmq-store` OPTIONS (path '{store}'); SELECT concat('rows ', count(*)) FROM v"
SCALA = """println("rows " + spark.read.format("rocketmq-store").load("{store}").count()); System.exit(0)"""


@pytest.mark.parametrize(
    ("program", "option", "text"), [("spark-sql", "-f", SQL), ("spark-shell", "-i", SCALA)], ids=["sql", "scala"]
)
def test_no_program_of_python_is_needed(golden: Unpacked, tmp_path: Path, program: str, option: str, text: str) -> None:
    store = golden("5.5.0-clean-basic")
    (tmp_path / "script").write_text(text.format(store=store))
    options = ["--master", "local[1]", "--driver-java-options", QUICK_JAVA]
    options += ["--conf", "spark.sql.catalogImplementation=in-memory"]
    ran = subprocess.run(
        ["/bin/bash", Path(pyspark.__file__).parent / "bin" / program, *options, option, "script"],
        env={**os.environ, "PYTHONPATH": str(ROOT), "PYSPARK_PYTHON": sys.executable},
        cwd=tmp_path,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr
    assert f"rows {len(dump_rows(store))}" in ran.stdout
