"""The command lines of docs/spark.md, checked without a cluster: options, settings, files, and the names in them."""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.pipeline.cluster import ROOT

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

PAGE = (ROOT / "docs" / "spark.md").read_text("utf-8")
COMMANDS = [
    line
    for block in re.findall(r"```(?:sh|text)\n(.*?)```", PAGE, re.DOTALL)
    for line in block.splitlines()
    if "--conf" in line or line.startswith("spark-submit")
]
SUBMITTED = [line for line in COMMANDS if line.startswith("spark-submit")]
MODULES = ("org.apache.spark.deploy.k8s.Config", "org.apache.spark.deploy.yarn.config.package")
"""Scala objects in which settings are declared, which they are once these are loaded."""
PREFIXES = ("spark.hadoop.", "spark.sql.catalog.")
"""Of names that a person chooses."""


def settings_in(text: str) -> list[str]:
    return [match.rstrip(".,;") for match in re.findall(r"--conf[ =]\"?(spark\.[\w.]+)=", text)]


@pytest.fixture(scope="module")
def jvm(spark: SparkSession) -> Any:
    jvm: Any = spark.sparkContext._jvm
    loader = jvm.Thread.currentThread().getContextClassLoader()
    for name in MODULES:
        jvm.java.lang.Class.forName(f"{name}$", True, loader)
    return jvm


def is_known(jvm: Any, name: str) -> bool:
    return name.startswith(PREFIXES) or jvm.org.apache.spark.internal.config.ConfigEntry.findEntry(name) is not None


def test_spark_knows_each_setting_of_the_page(jvm: Any) -> None:
    names = settings_in(PAGE)
    assert len(set(names)) >= 12
    assert [name for name in names if not is_known(jvm, name)] == []
    assert not is_known(jvm, "spark.kubernetes.executor.podTemplate")


def submitted(jvm: Any, words: list[str]) -> Any:
    """What `spark-submit` makes of its words."""
    python, environment = jvm.org.apache.spark.api.python.PythonUtils, jvm.java.util.HashMap()
    environment.put("HADOOP_CONF_DIR", "/etc/hadoop")
    return jvm.org.apache.spark.deploy.SparkSubmitArguments(
        python.toSeq(java_list(jvm, words)), python.toScalaMap(environment)
    )


def java_list(jvm: Any, words: list[str]) -> Any:
    listed = jvm.java.util.ArrayList()
    for word in words:
        listed.add(word)
    return listed


@pytest.mark.parametrize("line", SUBMITTED)
def test_spark_submit_takes_the_line(jvm: Any, line: str) -> None:
    from py4j.protocol import Py4JJavaError

    words = shlex.split(line)[1:]
    assert submitted(jvm, words).primaryResource().endswith("job.py")
    with pytest.raises(Py4JJavaError, match="--num-executor"):
        submitted(jvm, ["--num-executor", "4", *words])


def test_files_that_the_page_names_are_there() -> None:
    names = re.findall(r"packaging/[\w./-]+\w", PAGE)
    assert {Path(name).suffix for name in names} == {".py", ".spark", ".yaml"}
    assert [name for name in names if not (ROOT / name).is_file()] == []


def test_the_pod_template_is_that_of_the_settings() -> None:
    template = (ROOT / "packaging" / "spark-executor-pod.yaml").read_text("utf-8")
    image = (ROOT / "packaging" / "Containerfile.spark").read_text("utf-8")
    [container] = set(re.findall(r"podTemplateContainerName=(\S+)", PAGE))
    assert f"- name: {container}\n      image: registry.example/rmqtool-spark:" in template
    assert set(re.findall(r'rmqtool verify "(/[a-z]+)/', PAGE)) >= {"/stores"}
    assert "mountPath: /stores" in template
    assert "/opt/rmqtool/bin/python" in image
