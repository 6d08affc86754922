"""The page's HTML: whole in itself, safe from names, readable without a pointer."""

import base64
import hashlib
import json
import re
from itertools import pairwise
from pathlib import Path

import pytest

from curvflow.flows.report import render as rendering
from curvflow.flows.report.gather import MOST_BYTES, TYPES, _size
from curvflow.flows.report.render import policy_of, render
from tests.report.page import Page, assert_whole_in_itself
from tests.report.studies import MARKUP, SHOWN


@pytest.fixture(scope="module")
def page(written):
    return Page(written.html)


def test_no_character_of_the_page_acts_or_hides(written):
    assert SHOWN in written.html
    acting = {c for c in written.html if not c.isprintable() and c != "\n"}
    assert acting == set()


def test_markup_in_names_stays_text(page, written):
    assert MARKUP not in written.html
    assert "&lt;img src=x onerror=alert(1)&gt;" in written.html
    assert [tag for tag, _ in page.elements].count("script") == 2
    assert all(
        one["src"].startswith("data:") for one in page.all("img") if "src" in one
    )


def test_no_element_has_a_handler_or_a_style_of_its_own(page):
    names = {name for _, attributes in page.elements for name in attributes}
    assert not [name for name in names if name.startswith("on") or name == "style"]


def test_nothing_is_loaded_from_elsewhere(page):
    assert_whole_in_itself(page)


def test_the_policy_allows_the_scripts_of_the_page_by_their_hash_and_no_network(page):
    (policy,) = [one["content"] for one in page.all("meta") if "http-equiv" in one]
    rules = dict(rule.split(" ", 1) for rule in policy.split("; "))
    assert rules["default-src"] == "'none'"
    assert rules["img-src"] == "data:"
    assert "connect-src" not in rules
    assert "unsafe" not in policy
    for tag, attributes, text in page.inner:
        if attributes.get("type") == "application/json":
            continue
        digest = base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
        assert f"'sha256-{digest}'" in rules[f"{tag}-src"]


def test_the_page_as_served_may_ask_its_own_server_alone(written):
    html = render(written.content, version="abc")
    (policy,) = re.findall(
        r'http-equiv="Content-Security-Policy" content="([^"]*)"', html
    )
    assert policy.replace("&#39;", "'") == policy_of(is_served=True)
    assert "connect-src 'self'" in policy_of(is_served=True)
    assert 'data-version="abc"' in html


def test_scripts_hold_nothing_that_would_end_them():
    folder = Path(str(rendering.FOLDER))
    for path in folder.glob("page.*s*"):
        text = path.read_text(encoding="utf-8")
        assert not re.search(r"</(script|style)|<!--", text, re.IGNORECASE), path
    for path in folder.glob("*.html"):
        assert "style=" not in path.read_text(encoding="utf-8")


def test_drawings_are_images_with_addresses_of_their_own(page, written):
    shown = [one for one in page.all("img") if "src" in one]
    assert len(shown) == len(written.content.gallery.pictures) == 2
    drawings = [base64.b64decode(one["src"].partition(",")[2]) for one in shown]
    assert b"teal" in drawings[0]
    assert b"crimson" in drawings[1]
    assert all(b'id="m1"' in one for one in drawings)
    assert "m1" not in [one.get("id") for _, one in page.elements]
    assert [(one["width"], one["height"]) for one in shown] == [("144", "72")] * 2
    assert shown[0]["alt"] == f"Mean over seed; {MARKUP}{SHOWN}"


def test_origins_are_data_that_no_markup_can_leave(page, written):
    (text,) = [text for _, at, text in page.inner if at.get("id") == "origins"]
    assert "<" not in text
    assert [tuple(one) for one in json.loads(text)] == [*written.content.origins]


def test_every_section_has_a_head_a_landmark_and_a_link(page):
    sections = [one for one in page.all("section") if "id" in one]
    ids = {one["id"] for _, one in page.elements if "id" in one}
    assert len(ids) == sum("id" in one for _, one in page.elements)
    assert all(one["aria-labelledby"] in ids for one in sections)
    links = [one["href"] for one in page.all("a")]
    assert {link.removeprefix("#") for link in links} <= ids
    assert {f"#{one['id']}" for one in sections} <= set(links)
    assert [len(page.all(tag)) for tag in ("h1", "main", "nav")] == [1, 1, 1]
    assert page.all("html")[0]["lang"] == "en"


def test_headings_leave_no_level_out(page):
    levels = [int(tag[1]) for tag, _ in page.elements if re.fullmatch("h[1-6]", tag)]
    assert levels[0] == 1
    assert levels.count(1) == 1
    assert all(below <= above + 1 for above, below in pairwise(levels))


def test_every_table_has_a_caption_and_heads_that_can_be_pressed(page, written):
    html = written.html
    tables = re.findall(r"<table>.*?</table>", html, re.DOTALL)
    assert len(tables) > 10
    for table in tables:
        assert re.search(r"<caption[^>]*>[^<]+</caption>", table)
        heads = re.findall(r'<th scope="col"[^>]*>', table)
        assert all('aria-sort="none"' in one for one in heads)
        assert table.count("<button") == len(heads)
    for row in re.findall(r"<tr data-n.*?</tr>", html, re.DOTALL):
        assert row.count('<th scope="row"') == 1


def test_every_field_has_a_label_and_every_button_words(written):
    html = written.html
    for label in re.findall(r"<label>(.*?)</label>", html, re.DOTALL):
        assert re.search(r'<span class="unseen">Filter rows of [^<]+</span>', label)
    assert html.count('<input type="search"') == html.count("<label>")
    for inner in re.findall(r"<button[^>]*>(.*?)</button>", html, re.DOTALL):
        assert re.sub(r"<[^>]*>", "", inner).strip()


def test_states_are_given_by_a_word_next_to_the_sign(written):
    sign_and_word = r'<span aria-hidden="true">(.*?)</span> (.*?)</span>'
    told = set(re.findall(rf'<span class="state [\w-]+">{sign_and_word}', written.html))
    assert {("\u2715", "failed"), ("\u25b3", "diverged"), ("\u25cb", "missing")} <= told
    assert all(sign and word for sign, word in told)


def test_the_size_of_a_drawing_is_read_from_its_head():
    assert _size(b'<svg height="7.5pt" version="1.1" width="10.4pt">') == (10, 8)
    assert _size(b'<svg viewBox="0 0 1 1" stroke-width="3">') is None
    assert [*TYPES] == [".svg", ".png"]
    assert MOST_BYTES > 1_000_000
