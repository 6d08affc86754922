"""Hooks of MkDocs: reference pages, and links from names to them."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.exceptions import PluginError
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page
from mkdocs.utils import get_relative_url

sys.path.append(str(Path(__file__).parents[1]))  # MkDocs runs this file by its path

from docs.generator.sections import filled
from docs.generator.site import kind_nav, pages

KINDS = "Kinds"
# What a browser would fetch by itself, from another server.
_FETCHED = re.compile(
    r"<(?:script|img|iframe|source|link)\b[^>]*=\"?(?:https?:)?//[^>]*>"
)
_LEFT_ALONE = r"<a [^>]*>.*?</a>|<h[1-6].*?</h[1-6]>|<pre.*?</pre>"


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Put the pages of the kinds where the navigation names them."""
    config.nav = _filled(config.nav)
    return config


def _filled(nav: Any) -> Any:
    if isinstance(nav, list):
        return [_filled(entry) for entry in nav]
    if isinstance(nav, dict):
        return {
            title: kind_nav() if title == KINDS else _filled(entry)
            for title, entry in nav.items()
        }
    return nav


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages that are made."""
    for path, text in pages().items():
        files.append(File.generated(config, path, content=text))
    return files


def on_page_markdown(
    markdown: str, page: Page, config: MkDocsConfig, files: Files
) -> str:
    """Put the sections that are made where a page asks for them."""
    return filled(markdown)


def on_page_content(html: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Make each name of a kind a link to its page."""
    addresses = {
        path.rpartition("/")[2].removesuffix(".md"): file.url
        for path, file in files.src_uris.items()
        if path.startswith("reference/kinds/")
    }

    def linked(match: re.Match[str]) -> str:
        name = match["name"]
        if name is None or addresses.get(name) in (None, page.url) or name == "index":
            return match[0]
        if "." not in name and page.url.startswith("reference/"):
            return match[0]  # there `train` may be a variable
        address = get_relative_url(addresses[name], page.url)
        return f'<a class="kind" href="{address}"><code>{name}</code></a>'

    pattern = rf"{_LEFT_ALONE}|<code>(?P<name>[\w.]+)</code>"
    return re.sub(pattern, linked, html, flags=re.DOTALL)


def on_post_page(output: str, page: Page, config: MkDocsConfig) -> str:
    """Refuse a page that would ask another server for anything."""
    for tag in _FETCHED.findall(output):
        if 'rel="canonical"' not in tag:
            raise PluginError(f"{page.url}: expected files of the site, got {tag}")
    return output
