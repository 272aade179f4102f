"""Entry point of `rmqtool` and `python -m rmqtool`; ^C ends it without a traceback from the start."""

from __future__ import annotations

import os
import signal
import sys


def main() -> None:
    """Import the commands, which takes a tenth of a second, and run the command line."""
    _open_closed_streams()
    is_usual = signal.getsignal(signal.SIGINT) is signal.default_int_handler  # else somebody has it ignored
    if is_usual:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    from rmqtool.commands.app import main as run

    if is_usual:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    run()


def _open_closed_streams() -> None:
    """Open streams that the caller has closed (`>&-`) to nowhere; else a file of the store would be standard output."""
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        if getattr(sys, name) is None:
            os.open(os.devnull, os.O_RDWR)  # the lowest number that is free, and that is this one
            setattr(sys, name, open(number, "w" if number else "r", encoding="utf-8", closefd=False))  # noqa: SIM115


if __name__ == "__main__":
    main()
