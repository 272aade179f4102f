"""A Python process of an executor does for its first task what others need not do again."""

from __future__ import annotations

import subprocess
import sys
import zipfile
from pathlib import Path

SCRIPT = """
import importlib, sys, zipimport
sys.path.insert(0, sys.argv[1])
import sent
from rmqtool.pipeline.python_worker import keep_what_is_loaded
keep_what_is_loaded()
zipimport._read_directory = None
importlib.invalidate_caches()
import sent_too
print(sent.VALUE + sent_too.VALUE)
"""


def test_archives_of_modules_are_listed_once(tmp_path: Path) -> None:
    archive = tmp_path / "sent.zip"
    with zipfile.ZipFile(archive, "w") as modules:
        modules.writestr("sent.py", "VALUE = 1")
        modules.writestr("sent_too.py", "VALUE = 2")
    ran = subprocess.run([sys.executable, "-c", SCRIPT, archive], capture_output=True, text=True, check=True)
    assert ran.stdout == "3\n"
