"""The pictures of the README: what a command prints on a terminal, as SVG. `python -m tests.pictures` writes them.

A picture needs no font and no style of another file: each line says its width, so that any font of a terminal fits.
"""

from __future__ import annotations

import io
import re
import shlex
import tempfile
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Final
from xml.sax.saxutils import escape

import pytest

from rmqtool.commands.app import run
from tests import golden_stores

FOLDER: Final = Path(__file__).resolve().parent.parent / "docs" / "pictures"
PICTURES: Final = {
    "forecast.svg": "rmqtool forecast 5.5.0-damage-cq-only-file-zero-abort --broker-version 5.5.0",
}
"""What is typed; the store's name is that of a golden store, which lies in the folder."""
COLUMNS: Final = 80
ADVANCE, LINE, MARGIN = 8.4, 18, 14
"""Width of a character, height of a line, and room at the edges, in pixels."""
FONTS: Final = "ui-monospace, Menlo, Consolas, 'DejaVu Sans Mono', monospace"
COLOURS: Final = {"1;31": "#ff7b72", "1;32": "#7ee787", "1;33": "#e3b341", "1": "#ffffff"}
_STYLED: Final = re.compile(r"\x1b\[([\d;]*)m")


class Terminal(io.StringIO):
    """Output that counts as a terminal."""

    def isatty(self) -> bool:
        return True


def printed(command: str) -> str:
    """What a command prints on a terminal, with its colors, run in a folder with the golden store that it names."""
    words = shlex.split(command)
    out, err = Terminal(), io.StringIO()
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        golden_stores.unpack(words[2], Path(folder))
        patch.chdir(folder)
        patch.delenv("NO_COLOR", raising=False)
        for name, value in {"COLUMNS": str(COLUMNS), "TERM": "xterm", "TZ": "UTC"}.items():
            patch.setenv(name, value)
        with redirect_stdout(out), redirect_stderr(err):
            run(words[1:])
    assert not err.getvalue(), err.getvalue()
    return out.getvalue()


def picture(command: str) -> str:
    """The SVG of a command and what it prints."""
    lines = [f"\x1b[1m$ {command}\x1b[0m", *printed(command).splitlines()]
    columns = max(len(_STYLED.sub("", line)) for line in lines)
    width, height = columns * ADVANCE + 2 * MARGIN, len(lines) * LINE + 2 * MARGIN
    texts = (_line(line, MARGIN + LINE * number + LINE - 5) for number, line in enumerate(lines) if line)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:.1f} {height}" width="{width:.1f}" '
        f'height="{height}" role="img">\n'
        f"<title>{escape(command)}</title>\n"
        f'<rect width="100%" height="100%" rx="8" fill="#161b22"/>\n'
        f'<g font-family="{FONTS}" font-size="14" fill="#e6edf3">\n' + "\n".join(texts) + "\n</g>\n</svg>\n"
    )


def _line(line: str, baseline: int) -> str:
    """A line as one text; its styles, which begin at its begin and end at its end, as one fill."""
    styles = [style for style in _STYLED.findall(line) if style != "0"]
    assert len(styles) <= 1, line
    text = _STYLED.sub("", line).rstrip()
    indent = len(text) - len(text.lstrip())
    text = text.strip()
    fill = f' fill="{COLOURS[styles[0]]}" font-weight="bold"' if styles else ""
    return (
        f'<text x="{MARGIN + indent * ADVANCE:.1f}" y="{baseline}" textLength="{len(text) * ADVANCE:.1f}" '
        f'lengthAdjust="spacingAndGlyphs" xml:space="preserve"{fill}>{escape(text)}</text>'
    )


def main() -> None:
    FOLDER.mkdir(exist_ok=True)
    for name, command in PICTURES.items():
        (FOLDER / name).write_text(picture(command), "utf-8")


if __name__ == "__main__":
    main()
