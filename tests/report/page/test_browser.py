"""A browser shows the page at two widths: nothing sticks out, bars are drawn, and no text of a store runs.

Needs Chromium or Chrome on the PATH; `apt-get install chromium` brings it.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from rmqtool.report.page.page import page_text
from tests.report.page.test_page import HOSTILE, facts

BROWSER = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
FRAME = """<!doctype html><title>waiting</title><body><iframe id="page" src="report.html" width="{width}" height="900">
</iframe><script>
window.alert = () => {{ document.title = "ran"; }};
document.getElementById("page").addEventListener("load", (event) => {{
  const page = event.target.contentDocument;
  const bars = [...page.querySelectorAll("rect")].filter((bar) => bar.getBoundingClientRect().width > 0);
  const size = page.defaultView.getComputedStyle(page.querySelector("h1")).fontSize;
  document.title = [page.documentElement.scrollWidth, bars.length, page.scripts.length, size].join(" ");
}});
</script></body>"""


@pytest.fixture(autouse=True)
def _browser() -> None:
    """Skip where no browser is; in CI the tests fail."""
    if BROWSER is None and os.environ.get("CI") == "true":
        pytest.fail("browser tests need Chromium or Chrome on the PATH, and CI=true allows no skipping", pytrace=False)
    if BROWSER is None:
        pytest.skip("browser tests need Chromium or Chrome on the PATH; apt-get install chromium brings it")


def run(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    assert BROWSER is not None
    command = [BROWSER, "--headless", "--no-sandbox", "--disable-gpu", f"--user-data-dir={folder / 'profile'}"]
    return subprocess.run([*command, *arguments], capture_output=True, text=True, check=False, timeout=600)


@pytest.mark.parametrize("width", [400, 1200])
@pytest.mark.parametrize(
    "text", [HOSTILE[0], *(pytest.param(text, marks=pytest.mark.slow) for text in ("orders", *HOSTILE[1:4], "w" * 255))]
)
def test_the_page_fits_and_runs_nothing(tmp_path: Path, width: int, text: str) -> None:
    (tmp_path / "report.html").write_text(page_text(facts(text)), "utf-8")
    (tmp_path / "frame.html").write_text(FRAME.format(width=width), "utf-8")
    url = f"file://{tmp_path / 'frame.html'}"
    ran = run(tmp_path, "--allow-file-access-from-files", "--virtual-time-budget=5000", "--dump-dom", url)
    match = re.search(r"<title>(\d+) (\d+) (\d+) ([\d.]+)px</title>", ran.stdout)
    assert match is not None, ran.stdout[:500] + ran.stderr[-500:]
    page_width, bars, scripts = int(match[1]), int(match[2]), int(match[3])
    assert page_width <= width
    assert bars > 20
    assert scripts == 0
    assert float(match[4]) < 30  # the style sheet was allowed: a heading without it is 32 pixels high


def test_the_printed_page_has_all_sections_on_a_few_sheets(tmp_path: Path) -> None:
    (tmp_path / "report.html").write_text(page_text(facts("orders")), "utf-8")
    printed = tmp_path / "report.pdf"
    ran = run(tmp_path, "--no-pdf-header-footer", f"--print-to-pdf={printed}", f"file://{tmp_path / 'report.html'}")
    assert printed.exists(), ran.stderr[-500:]
    content = printed.read_bytes()
    assert content.startswith(b"%PDF")
    assert 2 <= len(re.findall(rb"/Type\s*/Page\b", content)) <= 12
    assert len(content) > 20_000


@pytest.mark.parametrize("width", [400, 1200])
def test_a_screenshot_is_made_at_each_width(tmp_path: Path, width: int) -> None:
    (tmp_path / "report.html").write_text(page_text(facts("orders")), "utf-8")
    picture = tmp_path / "report.png"
    ran = run(tmp_path, f"--window-size={width},2000", f"--screenshot={picture}", f"file://{tmp_path / 'report.html'}")
    assert picture.exists(), ran.stderr[-500:]
    assert picture.stat().st_size > 20_000  # a blank page is a few thousand bytes
    assert "Content Security Policy" not in ran.stderr
