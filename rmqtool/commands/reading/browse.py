"""`rmqtool browse`: the terminal browser. Everything on the screen is in the room `browse`."""

from __future__ import annotations

import os
import sys
from importlib.util import find_spec
from typing import TYPE_CHECKING, Final

import typer

from rmqtool.commands.messages import messages_of
from rmqtool.commands.options import store as shared
from rmqtool.commands.options.decode import body_choice
from rmqtool.commands.options.run import thread_count
from rmqtool.errors import UnsupportedError, how_to_install
from rmqtool.report.bodies import BODY_LIMIT, BodyForm
from rmqtool.scan.kernels.compile_notice import ON_COMPILE

if TYPE_CHECKING:
    from rmqtool.store.directory import Store
    from rmqtool.verify.survey.context import VerifyOptions

_SYSTEM: Final = "system"


@shared.with_store_options()
def browse(
    context: typer.Context,
    store: shared.ReadStore,
    decode: shared.DecodeOption = None,
    *,
    store_options: shared.StoreOptions,
) -> None:
    """Browse a store in the terminal: topics, queues, messages, records and findings.

    The store is not changed, and messages are read only when they come into sight. Press ? for the keys.

    Example: rmqtool browse /home/rocketmq/store --decode json
    """
    require_textual()
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        raise UnsupportedError("browse needs a terminal; dump, get and verify write to pipes and files")
    if os.environ.get("TERM", "dumb") in ("", "dumb"):
        raise UnsupportedError(
            "TERM does not name a terminal that can show screens; try: TERM=xterm rmqtool browse ..."
        )
    messages = messages_of(context)
    choice = body_choice(BodyForm.TEXT, BODY_LIMIT, raw=False, decode=decode or [_SYSTEM])
    opened = shared.open_store(store, store_options)
    shared.tell_opened(opened, messages)
    from rmqtool.browse.app import Browser
    from rmqtool.browse.browsed_store import BrowsedStore
    from rmqtool.verify.survey.context import VerifyOptions

    ON_COMPILE[:] = []  # what is said on stderr would stand in the middle of the screen

    def look() -> tuple[Store, VerifyOptions]:
        current = shared.open_store(store, store_options, settles=False).store
        in_use = shared.lock_of(store, current).is_in_use
        return current, VerifyOptions(threads=max(1, thread_count() - 1), broker_runs=in_use)

    with BrowsedStore(opened.store, opened.rules, str(store), choice.decoder) as browsed:
        Browser(browsed, look).run()


def require_textual() -> None:
    """Refuse, as UnsupportedError in one line, to run without Textual."""
    if find_spec("textual") is None:
        raise UnsupportedError(f"textual is not installed: {how_to_install('tui')}")
