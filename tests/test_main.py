"""The first moment of a command: nothing is done yet, and ^C is answered like later."""

from __future__ import annotations

import signal
import subprocess
import sys

from tests.conftest import Unpacked
from tests.store_state import assert_store_unchanged

INTERRUPTED_IMPORT = """
import os, signal, sys
signal.signal(signal.SIGINT, {handler})

class Finder:
    def find_spec(name, path=None, target=None):
        if name == "typer":
            os.kill(os.getpid(), signal.SIGINT)

sys.meta_path.insert(0, Finder)
sys.argv = ["rmqtool", "--version"]
from rmqtool.__main__ import main
main()
"""


def interrupted(handler: str) -> subprocess.CompletedProcess[bytes]:
    program = INTERRUPTED_IMPORT.format(handler=handler)
    return subprocess.run([sys.executable, "-c", program], capture_output=True, check=False, timeout=600)


def test_an_interrupt_during_imports_ends_without_a_traceback() -> None:
    ran = interrupted("signal.default_int_handler")
    assert (ran.returncode, ran.stdout, ran.stderr) == (-signal.SIGINT, b"", b"")


def test_an_ignored_interrupt_stays_ignored() -> None:
    ran = interrupted("signal.SIG_IGN")
    assert (ran.returncode, ran.stderr) == (0, b"")
    assert ran.stdout.startswith(b"rmqtool ")


def test_closed_streams_are_open_to_nowhere(golden: Unpacked) -> None:
    store = golden("5.5.0-crashed")
    with assert_store_unchanged(store):
        command = ["sh", "-c", '"$@" <&- >&- 2>&-', "sh", sys.executable, "-m", "rmqtool", "verify", str(store)]
        ran = subprocess.run(command, capture_output=True, check=False, timeout=600)
        assert (ran.returncode, ran.stdout, ran.stderr) == (3, b"", b"")
        command[2] = '"$@" >&-'
        ran = subprocess.run(command, capture_output=True, check=False, timeout=600)
        assert (ran.returncode, ran.stderr) == (3, b"")
