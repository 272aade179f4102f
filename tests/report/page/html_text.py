"""What a page consists of, for tests: elements, their attributes, and the text that a person reads."""

from __future__ import annotations

from html.parser import HTMLParser


class Page(HTMLParser):
    """The elements and texts of a page."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.texts: list[str] = []
        self._is_style = False
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))
        self._is_style = tag == "style"

    def handle_data(self, data: str) -> None:
        if not self._is_style and data.strip():
            self.texts.append(data.strip())

    @property
    def text(self) -> str:
        return " ".join(" ".join(self.texts).split())

    def marked(self, kind: str) -> int:
        """How many bars of a kind are drawn."""
        return sum(tag == "rect" and attributes.get("class") == kind for tag, attributes in self.elements)


HARMLESS = {
    "html", "head", "meta", "title", "style", "body", "header", "main", "section", "footer", "nav", "div", "span",
    "h1", "h2", "h3", "p", "a", "code", "strong", "dl", "dt", "dd", "ul", "li", "table", "thead", "tbody", "tr", "th",
    "td", "svg", "rect",
}  # fmt: skip
ATTRIBUTES = {
    "lang", "charset", "http-equiv", "content", "name", "class", "id", "href", "colspan", "viewbox",
    "preserveaspectratio", "role", "aria-label", "aria-hidden", "x", "y", "width", "height",
}  # fmt: skip


def assert_harmless(text: str) -> Page:
    """A page runs nothing, loads nothing and leads nowhere."""
    page = Page(text)
    assert {tag for tag, _ in page.elements} <= HARMLESS
    assert {name for _, attributes in page.elements for name in attributes} <= ATTRIBUTES
    links = [attributes["href"] or "" for _, attributes in page.elements if "href" in attributes]
    assert all(link.startswith("#") for link in links)
    assert "url(" not in text
    assert "@import" not in text
    assert all(character.isprintable() or character == "\n" for character in text)
    policies = [one["content"] for _, one in page.elements if one.get("http-equiv") == "Content-Security-Policy"]
    assert len(policies) == 1
    assert (policies[0] or "").startswith("default-src 'none'; style-src 'sha256-")
    return page
