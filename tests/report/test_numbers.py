"""Every number on the page is the one that the other commands and the arrays hold."""

import json
import re
import sys
from dataclasses import dataclass, field
from decimal import Decimal
from html.parser import HTMLParser

import pytest

import curvflow
from curvflow.cli.app import main
from tests.report.studies import STUDY

STAGES = [
    stage
    for stage, kind in re.findall(r"^  (\w+): {use: ([\w.]+)", STUDY, re.MULTILINE)
    if kind != "toy.draw"
]
VOID = {"meta", "img", "input", "wbr"}


@dataclass
class Cell:
    """A cell: what people read, and what it says it is in full."""

    full: str | None
    look: str
    text: str = ""

    @property
    def value(self) -> str:
        return self.text.strip() if self.full is None else self.full


@dataclass
class Table:
    """A table of the page."""

    heads: list[str] = field(default_factory=list)
    rows: list[list[Cell]] = field(default_factory=list)
    same: dict[str, Cell] = field(default_factory=dict)

    def dicts(self):
        for row in self.rows:
            yield {**self.same, **dict(zip(self.heads, row, strict=True))}


class Tables(HTMLParser):
    """Reads the tables of a page, by the names that they bear."""

    def __init__(self, html):
        super().__init__()
        self.found, self._open, self._cell, self._depth = {}, [], None, 0
        self.feed(html)

    def handle_starttag(self, tag, attrs):
        at = dict(attrs)
        if tag not in VOID:
            self._open.append((tag, self._is_silent(at)))
        if tag == "div" and at.get("class") == "grid":
            self._table = self.found.setdefault(at["data-name"], Table())
        elif tag == "th" and "data-field" in at:
            self._table.heads.append(at["data-field"])
        elif tag == "table" and at.get("class") == "plain":
            self._table = Table()  # of versions, without a name
        elif tag == "tr":
            self._row = []
        elif tag in ("td", "th") and "tbody" in self._in():
            self._cell = Cell(at.get("data-v"), at.get("class", ""))
            self._row.append(self._cell)
        elif tag == "dd" and "data-field" in at:
            self._cell = Cell(at.get("data-v"), "")
            self._table.same[at["data-field"]] = self._cell

    def handle_startendtag(self, tag, attrs):
        pass

    def handle_endtag(self, tag):
        self._open.pop()
        if tag in ("td", "th", "dd"):
            self._cell = None
        elif tag == "tr" and self._row:
            self._table.rows.append(self._row)
            self._row = []

    def handle_data(self, data):
        if self._cell is not None and not any(silent for _, silent in self._open):
            self._cell.text += data

    def _in(self):
        return [tag for tag, _ in self._open]

    @staticmethod
    def _is_silent(at):
        return at.get("aria-hidden") == "true" or at.get("class") in ("unseen", "units")


@pytest.fixture(scope="module")
def tables(written):
    return Tables(written.html).found


@pytest.fixture
def told(written, toys, monkeypatch, capsys):
    """Return a function that asks a command for its JSON."""

    def ask(verb, *arguments):
        words = ["curvflow", verb, str(written.study), *arguments, "--json"]
        monkeypatch.setattr(sys, "argv", words)
        with pytest.raises(SystemExit):
            main()
        return json.loads(capsys.readouterr().out)

    return ask


@pytest.fixture
def results(written, toys):
    return curvflow.open(written.study)


def plain(value):
    """Write a value of the JSON, in which what is not finite is null."""
    return "" if value is None else str(value)


def shown(row):
    """Return what a row says, in the JSON's words."""
    lacking = ("nan", "inf", "-inf")
    return {
        name: "" if cell.value in lacking else cell.value
        for name, cell in row.items()
        if "lacking" not in cell.look
    }


def is_rounded(text, full):
    """Whether a text is a number rounded to as many digits as it has."""
    short, whole = Decimal(text), Decimal(full)
    return abs(short - whole) <= Decimal(1).scaleb(short.as_tuple().exponent) / 2


@pytest.mark.parametrize("stage", STAGES)
def test_every_cell_is_that_of_show(tables, told, stage):
    expected = []
    for record in told("show", stage):
        # Where numbers are from, and why nodes diverged, the page tells elsewhere.
        elsewhere = {"seconds"} | ({"reason"} if "verdict" not in record else set())
        told_here = record.keys() - elsewhere
        expected.append({name: plain(record[name]) for name in told_here})
    names = [name for name in tables if re.fullmatch(rf"{stage}( by .*)?", name)]
    found = [
        {"status": "ok", **shown(row)} for name in names for row in tables[name].dicts()
    ]
    assert sorted(found, key=sorted_items) == sorted(expected, key=sorted_items)


def sorted_items(record):
    return sorted(record.items())


def test_every_short_number_is_the_full_one_rounded(tables):
    cells = [
        cell
        for table in tables.values()
        for row in table.dicts()
        for cell in row.values()
        if cell.full is not None and re.fullmatch(r"[-\d.e+]+", cell.full)
    ]
    short = [cell for cell in cells if re.fullmatch(r"[-\d.e]+", cell.text)]
    assert len(short) > 50
    assert [cell for cell in short if not is_rounded(cell.text, cell.full)] == []


def test_every_expectation_is_that_of_check_and_of_the_arrays(tables, told, results):
    rows = {
        (row["node"].value, row["quantity"].value): row
        for row in tables["expectations"].dicts()
    }
    findings = told("check")["findings"]
    assert len(rows) == len(findings) == 3
    for one in findings:
        inside = ",".join(f"{axis}={label}" for axis, label in one["where"].items())
        row = rows[f"{one['stage']}[{inside}]", one["quantity"]]
        assert row["verdict"].text.strip() == one["verdict"]
        assert row["source"].value == one["source"]
        assert shown(row)["measured"] == plain(one["measured"])
        assert row["expected"].text.startswith(f"{one['expected']:g}")
        if one["measured"] is None:
            assert row["sem"].text == row["z"].text == ""
            continue
        node = results[one["stage"]].sel(one["where"])
        measured, sem = float(node.llc_mean), float(node.llc_sem)
        assert (one["measured"], one["sem"]) == (measured, sem)
        assert is_rounded(row["sem"].text, str(sem))
        scatter = (measured - one["expected"]) / one["sd"]
        assert is_rounded(row["z"].value, str(scatter))
        assert (abs(scatter) > 3) == (one["verdict"] == "contradicted")


def test_every_cross_check_is_that_of_the_arrays(tables, results):
    rows = {
        row["node"].value: row for row in tables["Verdicts of cross-checks"].dicts()
    }
    assert len(rows) == 6
    for stage in ("same", "apart"):
        for rule in results[stage].rule.values:
            node, row = results[stage].sel(rule=rule), rows[f"{stage}[rule={rule}]"]
            z, limit = float(node.largest_z), float(node.limit)
            if rule == "huge":
                assert row["verdict"].text.strip() == "diverged"
                continue
            said = re.match(
                r"largest \|z\| ([\d.]+), limit ([\d.]+); .* of (\S+) ",
                row["reason"].text,
            )
            for text, number in zip(
                said.groups(), (z, limit, float(node.resolution)), strict=True
            ):
                assert is_rounded(text, str(number))
            word = "consistent" if z <= limit else "inconsistent"
            assert row["verdict"].text.strip() == word


def test_every_verdict_of_a_sampler_is_that_of_the_arrays(tables, results):
    rows = {row["node"].value: row for row in tables["Verdicts of samplers"].dicts()}
    found = results["llc"]
    assert len(rows) == found.sizes["seed"] * found.sizes["rule"] == 12
    for seed in found.seed.values:
        for rule in found.rule.values:
            node, row = (
                found.sel(seed=seed, rule=rule),
                rows[f"llc[{seed=!s},{rule=!s}]"],
            )
            if rule == "huge":
                assert row["verdict"].text.strip() == "diverged"
                assert row["estimate"].text == ""
                continue
            assert row["verdict"].text.strip() == str(node.verdict.item())
            assert row["reason"].text == str(node.reason.item())
            value, sem = row["estimate"].text.split(" \u00b1 ")
            assert is_rounded(value, str(float(node.llc_mean)))
            assert is_rounded(sem, str(float(node.llc_sem)))


def test_nodes_listed_as_failed_or_diverged_are_those_of_show(tables, told):
    expected = set()
    for stage in STAGES:
        for record in told("show", stage):
            if record["status"] in ("failed", "diverged"):
                axes = [a for a in ("seed", "rule", "epoch") if a in record]
                inside = ",".join(f"{axis}={record[axis]}" for axis in axes)
                expected.add((f"{stage}[{inside}]", record["status"]))
    rows = tables["failed-and-diverged"].dicts()
    found = [(row["node"].value, row["status"].text.strip()) for row in rows]
    assert len(found) == len(set(found)) > 10
    assert set(found) == expected
