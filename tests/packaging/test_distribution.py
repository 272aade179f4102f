"""What an index gets: a source archive and a wheel that an index takes, and nothing that is not meant for users."""

from __future__ import annotations

import email
import re
import runpy
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import rmqtool
from tests.packaging.conftest import Built
from tests.packaging.environments import ROOT, run


def metadata(wheel: Path) -> email.message.Message:
    with zipfile.ZipFile(wheel) as packed:
        (name,) = [name for name in packed.namelist() if name.endswith(".dist-info/METADATA")]
        return email.message_from_bytes(packed.read(name))


def test_an_index_takes_both_and_renders_the_readme(built: Built) -> None:
    ran = subprocess.run(
        [sys.executable, "-m", "twine", "--no-color", "check", "--strict", *built],
        capture_output=True,
        text=True,
        check=False,
        timeout=600,
    )
    assert (ran.returncode, ran.stdout.count("PASSED")) == (0, 2), ran.stdout + ran.stderr


def test_no_link_of_the_readme_leads_into_a_checkout(built: Built) -> None:
    text = str(metadata(built.wheel).get_payload())
    assert "# rmqtool" in text
    assert "docs/runbook.md" in text
    outside_code = re.sub(r"^```.*?^```$", "", text, flags=re.MULTILINE | re.DOTALL)
    targets = re.findall(r"\]\(([^)]+)\)", outside_code)
    assert targets
    assert all(target.startswith(("https://", "#")) for target in targets)


def test_links_lead_to_a_repository_that_the_metadata_names() -> None:
    for_index = runpy.run_path(str(ROOT / "packaging/readme_hook.py"))["for_index"]
    text = "[a](docs/a.md#b) ![p](docs/p.svg) [w](https://localhost/) [h](#h)\n```\n[c](d)\n```\n"
    text += "<!-- to writers -->\nend\n"
    base = "https://localhost/rmqtool"
    assert for_index(text, base, "v1.0") == (
        f"[a]({base}/blob/v1.0/docs/a.md#b) ![p]({base}/raw/v1.0/docs/p.svg) [w](https://localhost/) [h](#h)\n"
        "```\n[c](d)\n```\nend\n"
    )
    assert for_index("[`a.md`](docs/a.md), [b](docs/b.md)", "", "v1.0") == "docs/a.md, b (docs/b.md)"


def test_the_metadata_says_for_whom_it_is(built: Built) -> None:
    fields = metadata(built.wheel)
    assert (fields["Name"], fields["Version"], fields["License-Expression"]) == (
        "rmqtool",
        rmqtool.__version__,
        "Apache-2.0",
    )
    classifiers = set(fields.get_all("Classifier") or [])
    assert {f"Programming Language :: Python :: 3.{minor}" for minor in (11, 12, 13)} <= classifiers
    extras = set(fields.get_all("Provides-Extra") or [])
    assert {"fast", "arrow", "remote", "rocksdb", "spark"} <= extras
    assert not any("numba" in line and "extra" not in line for line in fields.get_all("Requires-Dist") or [])


def test_the_wheel_puts_one_package_and_the_shim_for_spark_into_an_environment(built: Built) -> None:
    with zipfile.ZipFile(built.wheel) as packed:
        tops = {name.partition("/")[0] for name in packed.namelist()}
    assert {top for top in tops if not top.startswith("rmqtool-")} == {"rmqtool", "pyspark_rocketmq.py"}


def test_the_source_archive_has_what_a_packager_needs(built: Built) -> None:
    with tarfile.open(built.sdist) as packed:
        names = {name.partition("/")[2] for name in packed.getnames()}
    assert {"LICENSE", "README.md", "CHANGELOG.md", "Makefile", "docs/runbook.md"} <= names
    assert not any(name.startswith(("tests/golden/", ".venv")) for name in names)


def test_it_runs_by_its_path_from_an_environment_that_is_not_activated(slim: Path, tmp_path: Path) -> None:
    for command in ([slim / "rmqtool"], [slim / "python", "-m", "rmqtool"]):
        ran = run([*command, "--version"], tmp_path)
        assert (ran.returncode, ran.stdout, ran.stderr) == (0, f"rmqtool {rmqtool.__version__}\n", "")
