"""Drives the browser by its keys, and reads what stands on the screen, character by character."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

from textual.app import App
from textual.pilot import Pilot
from textual.widgets import Input

from rmqtool.browse.app import Browser
from rmqtool.browse.browsed_store import BrowsedStore
from rmqtool.commands.options.store import StoreOptions, open_store
from rmqtool.decoders.chain import make_chain
from rmqtool.store.location import StoreLocation
from rmqtool.verify.survey.context import VerifyOptions

NARROW, WIDE = (80, 24), (120, 40)
Drive = Callable[["Driver"], Awaitable[None]]


class Driver:
    """Presses keys, and waits until what they ask for is on the screen."""

    def __init__(self, app: Browser, pilot: Pilot[None]) -> None:
        self.app, self._pilot = app, pilot

    async def press(self, *keys: str) -> str:
        """The screen after some keys."""
        for key in keys:
            await self._pilot.press(key)
            await self.settle()
        await self._pilot.pause()
        return screen_of(self.app)

    async def type(self, text: str) -> str:
        """The screen after some text, at once as pasted text comes, and Enter."""
        self.app.screen.query_one(Input).value = text
        return await self.press("enter")

    async def settle(self) -> None:
        """Wait for whatever is read in the background."""
        await self._pilot.pause()
        while any(not worker.is_finished for worker in self.app.workers):
            await self.app.workers.wait_for_complete()
            await self._pilot.pause()


def browse(path: Path, drive: Drive, size: tuple[int, int] = NARROW, decode: str = "system") -> None:
    """Open a store in the browser and drive it; what a person would not see is checked on the way."""
    opened = open_store(StoreLocation(path), StoreOptions())
    with BrowsedStore(opened.store, opened.rules, path.name, make_chain([decode])) as store:
        options = VerifyOptions(threads=1, compiled=False)
        app = Browser(store, lambda: (open_store(StoreLocation(path), StoreOptions()).store, options))

        async def run() -> None:
            async with app.run_test(size=size) as pilot:
                driver = Driver(app, pilot)
                await driver.settle()
                await drive(driver)

        asyncio.run(run())


def screen_of(app: App[None]) -> str:
    """The text on the screen; every character is one that a terminal only prints."""
    strips = app.screen._compositor.render_strips()
    lines = ["".join(segment.text for segment in strip if not segment.control) for strip in strips]
    assert all(line.isprintable() for line in lines), lines
    assert not any(segment.control for strip in strips for segment in strip)
    return "\n".join(lines)
