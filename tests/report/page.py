"""The page's HTML as elements, and what holds of any page."""

import re
from html.parser import HTMLParser

LOADING = (
    "src",
    "href",
    "data",
    "poster",
    "srcset",
    "action",
    "formaction",
    "xlink:href",
)
VOID = {"meta", "img", "input", "link", "br", "hr", "wbr", "path", "circle", "rect"}


class Page(HTMLParser):
    """Every element with its attributes, and the text of scripts and styles."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str]]] = []
        self.inner: list[tuple[str, dict[str, str], str]] = []
        self._open: list[str] = []
        self.feed(html)
        self.close()
        assert self._open == []

    def handle_starttag(self, tag, attrs):
        self.elements.append((tag, {name: value or "" for name, value in attrs}))
        if tag not in VOID:
            self._open.append(tag)

    def handle_endtag(self, tag):
        if tag not in VOID:
            assert self._open.pop() == tag

    def handle_startendtag(self, tag, attrs):
        self.elements.append((tag, {name: value or "" for name, value in attrs}))

    def handle_data(self, data):
        if self._open and self._open[-1] in ("script", "style"):
            self.inner.append((self._open[-1], self.elements[-1][1], data))

    def all(self, tag):
        return [attributes for name, attributes in self.elements if name == tag]


def assert_whole_in_itself(page: Page) -> None:
    """Assert that nothing is loaded from elsewhere, and no link leads there."""
    assert not page.all("link")
    assert not page.all("iframe")
    for tag, attributes in page.elements:
        for name in LOADING:
            assert re.match(r"data:image/|#|$", attributes.get(name, "")), (tag, name)
