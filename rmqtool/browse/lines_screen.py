"""A screen that shows lines, cut to its width."""

from __future__ import annotations

from abc import abstractmethod
from typing import TypeVar

from textual.app import ComposeResult
from textual.screen import Screen
from textual.widgets import Footer

from rmqtool.browse.list_model import Line, Lines
from rmqtool.browse.virtual_list import VirtualList

Answer = TypeVar("Answer")


class LinesScreen(Screen[Answer]):
    """Lines of one object; the result is defined by the subclass."""

    @abstractmethod
    def lines(self, width: int) -> list[Line]:
        """The lines in a width."""

    def compose(self) -> ComposeResult:
        yield VirtualList(has_cursor=False)
        yield Footer(show_command_palette=False, compact=True)

    def on_mount(self) -> None:
        self.query_one(VirtualList).focus()

    def on_resize(self) -> None:
        """Lines are cut to the width."""
        self.show_lines()

    def show_lines(self, *, top: bool = False) -> None:
        """Make the lines again, from the first one on or where they are scrolled to."""
        shown = self.query_one(VirtualList)
        shown.show(Lines(self.lines(max(20, self.size.width - 2))), 0 if top else shown.top)
