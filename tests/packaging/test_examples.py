"""The files for services: what systemd, Kubernetes and a linter of images say of them."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.packaging.environments import ROOT

PACKAGING = ROOT / "packaging"
BIN = Path(sys.executable).parent


def check(*command: str | Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(list(map(str, command)), capture_output=True, text=True, check=False, timeout=600)


def test_the_script_is_that_of_the_cookbook() -> None:
    """`tests/test_cookbook.py` runs it."""
    text = (ROOT / "docs/cookbook.md").read_text("utf-8")
    assert f"```sh\n{(PACKAGING / 'recover-store.sh').read_text('utf-8')}```" in text


@pytest.mark.skipif(not shutil.which("systemd-analyze"), reason="systemd-analyze is not installed")
def test_systemd_takes_the_unit(tmp_path: Path) -> None:
    unit = tmp_path / "rmqtool-recover.service"
    text = (PACKAGING / unit.name).read_text("utf-8")
    text = text.replace("Documentation=man:", "Documentation=https://localhost/")  # the page may not be installed
    unit.write_text(text)
    assert check("systemd-analyze", "verify", unit).stderr == ""
    unit.write_text(text.replace("PrivateNetwork=yes", "PrivateNetwork=perhaps"))
    assert "perhaps" in check("systemd-analyze", "verify", unit).stderr


@pytest.mark.parametrize("name", ["kubernetes-init-container.yaml", "spark-executor-pod.yaml"])
def test_kubernetes_takes_the_pod(tmp_path: Path, name: str) -> None:
    pod = PACKAGING / name
    ran = check(BIN / "kubernetes-validate", "--strict", pod)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    wrong = tmp_path / "wrong.yaml"
    wrong.write_text(pod.read_text("utf-8").replace("mountPath: /s", "mountPth: /s"))
    assert check(BIN / "kubernetes-validate", "--strict", wrong).returncode != 0


@pytest.mark.parametrize("name", ["Containerfile", "Containerfile.spark"])
def test_the_image_is_built_by_rules_that_a_linter_knows(name: str) -> None:
    ran = check(BIN / "hadolint", PACKAGING / name)
    assert (ran.returncode, ran.stdout) == (0, ""), ran.stdout + ran.stderr


@pytest.mark.parametrize(("extras", "asked"), [("fast", ".[fast]"), ("fast,rocksdb", ".[fast,rocksdb]"), ("", ".")])
def test_the_image_asks_pip_for_what_pip_understands(extras: str, asked: str) -> None:
    """`.[]` is no requirement, so the slim image needs the directory alone."""
    text = (PACKAGING / "Containerfile").read_text("utf-8")
    (word,) = re.findall(r"pip install --no-cache-dir (\S+)", text)
    ran = subprocess.run(
        ["sh", "-c", f"printf %s {word}"], env={"EXTRAS": extras}, capture_output=True, text=True, check=True
    )
    assert ran.stdout == asked


def test_the_image_leaves_out_what_a_checkout_has_beside_the_sources() -> None:
    assert {".git", ".venv", "tests", "dist"} <= set((ROOT / ".dockerignore").read_text("utf-8").split())


def test_all_name_the_same_places() -> None:
    """The image, the unit and the pod find the program where the image has it."""
    for name in ("Containerfile", "Containerfile.spark", "rmqtool-recover.service", "kubernetes-init-container.yaml"):
        assert re.search(r"/opt/rmqtool/bin", (PACKAGING / name).read_text("utf-8")), name
