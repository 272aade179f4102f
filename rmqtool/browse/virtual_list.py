"""A list that draws the lines in sight only: its length costs nothing, and moving asks for what is not read yet."""

from __future__ import annotations

from typing import ClassVar

from rich.segment import Segment
from rich.style import Style
from textual import events
from textual.binding import Binding, BindingType
from textual.message import Message
from textual.reactive import reactive
from textual.strip import Strip
from textual.widget import Widget

from rmqtool.browse.list_model import BAD, FAINT, STRONG, Line, Lines, ListModel
from rmqtool.report.text import columns_of, cropped, escaped

_STYLES = {
    BAD: Style(color="#ff7b72", bold=True),  # a red that is still bright once NO_COLOR has made it gray
    FAINT: Style(dim=True),
    STRONG: Style(bold=True),
}
_WAITING = Line("...", FAINT)
_WHEEL_LINES = 3


class VirtualList(Widget, can_focus=True):
    """Lines of a model, with a cursor unless they are only to be read."""

    DEFAULT_CSS = "VirtualList { height: 1fr; width: 1fr; }"
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("up", "move(-1)", "Up", show=False),
        Binding("down", "move(1)", "Down", show=False),
        Binding("pageup", "page(-1)", "Page up", show=False),
        Binding("pagedown,space", "page(1)", "Page down", show=False),
        Binding("home", "edge(False)", "First", show=False),
        Binding("end", "edge(True)", "Last", show=False),
        Binding("enter", "choose", "Open", show=False),
    ]
    cursor = reactive(0)
    top = reactive(0)

    class Chosen(Message):
        """Enter was pressed on a line."""

        def __init__(self, sender: VirtualList, row: int) -> None:
            super().__init__()
            self.list, self.row = sender, row

    class Moved(Message):
        """Another line is under the cursor, or more of the list is known."""

        def __init__(self, sender: VirtualList) -> None:
            super().__init__()
            self.list = sender

    def __init__(self, model: ListModel | None = None, *, has_cursor: bool = True, name: str | None = None) -> None:
        super().__init__(id=name)
        self.model: ListModel = model or Lines(())
        self._has_cursor = has_cursor
        self._is_reading = False

    def show(self, model: ListModel, row: int = 0) -> None:
        """Show another model, with the cursor on a row."""
        self.model = model
        self.go(row)
        self.changed()

    def changed(self) -> None:
        """The model has other lines than before."""
        self.refresh()
        self.call_after_refresh(self._demand)
        self.post_message(self.Moved(self))

    def go(self, row: int) -> None:
        """Put the cursor on a row, which is in sight afterwards."""
        row = max(0, min(row, self.model.count() - 1))
        height = self._rows_in_sight
        if not self._has_cursor:
            self.top = max(0, min(row, self.model.count() - height))
        elif row < self.top or row >= self.top + height:
            self.top = max(0, min(row - height // 2, self.model.count() - height))
        self.cursor = row

    def action_move(self, lines: int) -> None:
        """One line up or down; without a cursor the lines themselves move."""
        start = self.cursor if self._has_cursor else self.top
        if self._has_cursor:
            row = max(0, min(start + lines, self.model.count() - 1))
            self.top = max(min(self.top, row), row - self._rows_in_sight + 1)
            self.cursor = row
        else:
            self.go(start + lines)

    def action_page(self, pages: int) -> None:
        """A screen up or down."""
        lines = pages * max(1, self._rows_in_sight - 1)
        if self._has_cursor:
            self.top = max(0, min(self.top + lines, self.model.count() - self._rows_in_sight))
        self.action_move(lines)

    def action_edge(self, is_last: bool) -> None:
        """The first line, or the last one that is known."""
        self.go(self.model.count() - 1 if is_last else 0)

    def action_choose(self) -> None:
        """Open the line under the cursor."""
        if self._has_cursor and self.model.count():
            self.post_message(self.Chosen(self, self.cursor))

    def on_mouse_scroll_down(self, event: events.MouseScrollDown) -> None:
        event.stop()
        self.action_move(_WHEEL_LINES)

    def on_mouse_scroll_up(self, event: events.MouseScrollUp) -> None:
        event.stop()
        self.action_move(-_WHEEL_LINES)

    def on_click(self, event: events.Click) -> None:
        row = self.top + event.y - self._heading_lines
        if 0 <= row < self.model.count():
            if row == self.cursor:
                self.action_choose()
            self.go(row)

    def on_resize(self) -> None:
        """More or fewer lines are in sight."""
        self.go(self.cursor if self._has_cursor else self.top)
        self.changed()

    def watch_top(self) -> None:
        self.changed()

    def watch_cursor(self) -> None:
        self.refresh()
        self.post_message(self.Moved(self))

    def render_line(self, y: int) -> Strip:
        """One line of the widget; the last column shows where in the list it stands."""
        width = self.size.width
        room = max(1, width - 2)
        heading = self.model.heading(room)
        if heading is not None and y == 0:
            return self._strip(Line(heading, STRONG), width, selected=False)
        row = self.top + y - (heading is not None)
        if row >= self.model.count():
            return Strip.blank(width, self.rich_style)
        line = self.model.line(row, room) or _WAITING
        return self._strip(line, width, selected=self._has_cursor and row == self.cursor, mark=self._mark(row))

    @property
    def _heading_lines(self) -> int:
        return 0 if self.model.heading(max(1, self.size.width - 2)) is None else 1

    @property
    def _rows_in_sight(self) -> int:
        return max(1, self.size.height - self._heading_lines)

    def _mark(self, row: int) -> str:
        """The scroll bar's character beside a row."""
        count, height = self.model.count(), self._rows_in_sight
        if count <= height:
            return " "
        thumb = max(1, height * height // count)
        start = self.top * (height - thumb) // max(1, count - height)
        return "█" if start <= row - self.top < start + thumb else "│"

    def _strip(self, line: Line, width: int, *, selected: bool, mark: str = " ") -> Strip:
        text = cropped(escaped(line.text), width - 2)
        text += " " * (width - 1 - columns_of(text))
        style = self.rich_style + _STYLES.get(line.style, Style())
        if selected:
            style += Style(reverse=True) if self.has_focus else Style(underline=True)
        segments = [Segment(text, style), Segment(mark, self.rich_style + _STYLES[FAINT])]
        return Strip(segments).adjust_cell_length(width, self.rich_style)

    def _demand(self) -> None:
        """Read the lines in sight, one range at a time: fast paging waits for the last page only."""
        first, count = self.top, min(self._rows_in_sight, self.model.count() - self.top)
        if self._is_reading or count <= 0 or self.model.is_read(first, count):
            return
        self._is_reading = True
        model = self.model

        def was_read() -> None:
            self._is_reading = False
            self.changed()

        def read() -> None:
            try:
                model.read(first, count)
            finally:
                self.app.call_from_thread(was_read)

        self.run_worker(read, thread=True, group="read", exit_on_error=True)
