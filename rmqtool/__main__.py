"""What `rmqtool` and `python -m rmqtool` run: the command line, which ^C ends without a traceback from the start."""

from __future__ import annotations

import signal


def main() -> None:
    """Import the commands, which takes a tenth of a second, and run what was typed."""
    is_usual = signal.getsignal(signal.SIGINT) is signal.default_int_handler  # else somebody has it ignored
    if is_usual:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    from rmqtool.commands.app import main as run

    if is_usual:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    run()


if __name__ == "__main__":
    main()
