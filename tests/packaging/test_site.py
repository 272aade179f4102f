"""The documentation site: every link leads somewhere, every page is in its contents, and no page asks another host."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.packaging.environments import ROOT


def build(config: Path, folder: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--config-file", config, "--site-dir", folder],
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
        env=os.environ | {"NO_MKDOCS_2_WARNING": "1"},
    )


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    ran = build(ROOT / "mkdocs.yml", folder)
    assert ran.returncode == 0, ran.stderr
    return folder


def test_every_page_is_there(site: Path) -> None:
    pages = {path.relative_to(ROOT / "docs").with_suffix(".html") for path in (ROOT / "docs").rglob("*.md")}
    pages = {path.with_name("index.html") if path.name == "README.html" else path for path in pages}
    pages |= {Path("index.html"), Path("changelog.html"), Path("contributing.html"), Path("benchmarks.html")}
    assert {path for path in pages if not (site / path).is_file()} == set()


def test_no_page_loads_anything_from_another_host(site: Path) -> None:
    loads = re.compile(r"""<(?:script|img|iframe)[^>]*\ssrc="?([^"\s>]+)|<link[^>]*\shref="?([^"\s>]+)""")
    targets = {src or href for page in site.rglob("*.html") for src, href in loads.findall(page.read_text("utf-8"))}
    assert targets
    assert [target for target in targets if re.match(r"(https?:)?//", target)] == []


@pytest.mark.parametrize(
    ("page", "language", "other"),
    [
        ("verify.html", "en", "zh/verify.html"),
        ("zh/verify.html", "zh", "../verify.html"),
        ("zh/index.html", "zh", "../index.html"),
        ("timer.html", "en", "zh/index.html"),
    ],
)
def test_a_page_has_its_language_and_leads_to_the_other_one(site: Path, page: str, language: str, other: str) -> None:
    text = (site / page).read_text("utf-8")
    assert re.search(rf'<html lang="?{language}\b', text)
    assert re.search(rf'href="?{re.escape(other)}"? hreflang="?{"en" if language == "zh" else "zh"}', text)


def test_a_link_that_leads_nowhere_is_found(tmp_path: Path) -> None:
    """And a page that the contents leave out, and a heading that is not there."""
    for name in ("docs", "packaging"):
        shutil.copytree(ROOT / name, tmp_path / name, ignore=shutil.ignore_patterns("*.ipynb", "__pycache__"))
    (tmp_path / "benchmarks").mkdir()
    for name in ("README.md", "CHANGELOG.md", "CONTRIBUTING.md", "LICENSE", "mkdocs.yml", "benchmarks/RESULTS.md"):
        shutil.copy(ROOT / name, tmp_path / name)
    (tmp_path / "docs/extra.md").write_text("# Extra\n\n[gone](gone.md) [part](faq.md#gone)\n")
    ran = build(tmp_path / "mkdocs.yml", tmp_path / "site")
    assert ran.returncode != 0
    for problem in ("'gone.md'", "'faq.md#gone'", "extra.md"):
        assert problem in ran.stderr
