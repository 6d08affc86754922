"""Earlier results nearest to a node, and the differences from them."""

from __future__ import annotations

import json
import re
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from curvflow.flows.graph.graph import Node, input_digests
from curvflow.schemas.nodes import Label
from curvflow.schemas.records.receipts import Receipt
from curvflow.schemas.study.yaml_source import one_line_yaml
from curvflow.stores.base import Index

CONTENT = ".sha256"  # how a key names what a file holds
DIGEST = re.compile(r"[0-9a-f]{64}")


@dataclass(frozen=True, slots=True)
class Change:
    """One difference.

    Attributes:
        what: `kind`, `version`, `parameter`, `file`, `variable`, `input`,
            `struck off`, `failed`, `lost`, `removed` or `new`.
        text: all of it in words; changes of equal text are the same.
        name: of the parameter, file or input.
        old: value before, if it had one.
        new: value now, if it has one.
    """

    what: str
    text: str
    name: str = ""
    old: Any = field(default=None, compare=False)
    new: Any = field(default=None, compare=False)

    def as_json(self) -> dict[str, Any]:
        """Return the change as plain data."""
        named = {"what": self.what, "name": self.name}
        return {**named, "old": self.old, "new": self.new}

    def __str__(self) -> str:
        return self.text


def own_changes(node: Node, earlier: Receipt) -> list[Change]:
    """List the changes of a node itself: kind, version, parameters and files."""
    changes = []
    kind = node.kind
    if kind.name != earlier.kind:
        text = f"kind {earlier.kind} -> {kind.name}"
        changes.append(Change("kind", text, "", earlier.kind, kind.name))
    elif kind.version != earlier.version:
        text = f"version {earlier.version} -> {kind.version}"
        changes.append(Change("version", text, "", earlier.version, kind.version))
    return changes + list(_parameters(earlier.params, node.form))


def input_changes(node: Node, earlier: Receipt) -> list[Change]:
    """List the inputs whose content differs, by name; none while one is unknown."""
    digests = input_digests(node)
    if digests is None:  # a node that waits may yet find its inputs unchanged
        return []
    names = sorted(digests.keys() | earlier.inputs.keys())
    return [
        Change("input", f"input `{name}` changed", name)
        for name in names
        if digests.get(name) != earlier.inputs.get(name)
    ]


_ABSENT = object()


def _parameters(old: object, new: object, path: str = "") -> Iterator[Change]:
    if isinstance(old, Mapping) and isinstance(new, Mapping):
        for key in sorted(old.keys() | new.keys()):
            inner = f"{path}.{key}" if path else key
            before, after = old.get(key, _ABSENT), new.get(key, _ABSENT)
            yield from _parameters(before, after, inner)
    elif type(old) is not type(new) or old != new:
        if path.endswith(CONTENT) and _is_digest(old) and _is_digest(new):
            name = path.removesuffix(CONTENT)
            text = f"file {name}: content {str(old)[:12]} -> {str(new)[:12]}"
            yield Change("file", text, name, old, new)
            return
        text = f"parameter {path}: {_shown(old)} -> {_shown(new)}"
        yield Change("parameter", text, path, _plain(old), _plain(new))


def _is_digest(value: object) -> bool:
    return isinstance(value, str) and DIGEST.fullmatch(value) is not None


def _shown(value: object) -> str:
    return "nothing" if value is _ABSENT else one_line_yaml(value)


def _plain(value: object) -> object:
    return None if value is _ABSENT else value


Coords = frozenset[tuple[str, Label]]
Items = frozenset[tuple[str, str]]
CANDIDATES = 16  # compared in full, of those that are about as near


class NearestResults:
    """Every result in the log, live or not, by its nearness to a node."""

    def __init__(self, index: Index, study: str) -> None:
        self._index, self._rows = index, index.rows
        self._runs = [run for run in index.runs if run.study == study]
        self._stages: dict[str, dict[Coords, list[Receipt]]] = {}
        self._labels: dict[str, dict[str, set[Label]]] = {}
        self._likes: dict[str, _Like] = {}

    def at(self, node: Node) -> Sequence[Receipt]:
        """Return the study's results of a stage and coordinates, oldest first."""
        return self._stage(node.stage).get(frozenset(node.coords.items()), ())

    def nearest_at(self, node: Node) -> Receipt | None:
        """Return the result of `at` with the fewest changes, the latest of equals."""
        return _nearest(node, self.at(node))

    def nearest(self, node: Node) -> Receipt | None:
        """Return the result nearest to a node, None if there is none of its kind.

        Of the same stage and coordinates if possible, else of the same kind in
        whichever study; of those the one with the fewest differing parameters and
        inputs, the latest of equals.
        """
        return self.nearest_at(node) or _nearest(node, self._like(node).near(node))

    def has_alike(self, node: Node) -> bool:
        """Return whether a result ever had the same kind, version and parameters."""
        return self._like(node).has(node)

    def labels(self, stage: str) -> Mapping[str, set[Label]]:
        """Return the labels that results of a stage had, by dimension."""
        if stage not in self._labels:
            labels = self._labels[stage] = defaultdict(set)
            for coords in self._stage(stage):
                for dim, label in coords:
                    labels[dim].add(label)
        return self._labels[stage]

    def _stage(self, stage: str) -> Mapping[Coords, Sequence[Receipt]]:
        if stage not in self._stages:
            by_coords = defaultdict(list)
            begun = {run.begun for run in self._runs}
            for receipt in self._rows.values():
                if receipt.stage == stage and receipt.run in begun:
                    by_coords[frozenset(receipt.coords.items())].append(receipt)
            for coords, receipt in self._shared(stage):
                by_coords.setdefault(coords, [receipt])
            self._stages[stage] = dict(by_coords)
        return self._stages[stage]

    def _shared(self, stage: str) -> Iterator[tuple[Coords, Receipt]]:
        """Yield the latest run's results, as a receipt names only one of its nodes."""
        last = next((run for run in reversed(self._runs) if stage in run.tables), None)
        if last is None:
            return
        by_end = {run.ended: run.tables for run in self._index.runs}
        tables = by_end.get(last.tables[stage].get("same_as", last.ended), {})
        table = tables.get(stage, {"dims": [], "nodes": []})
        for point, place, _ in table["nodes"]:
            receipt = self._rows.get(tuple(place)) if place else None
            if receipt is not None:
                yield frozenset(zip(table["dims"], point, strict=True)), receipt

    def _like(self, node: Node) -> _Like:
        name = node.kind.name
        if name not in self._likes:
            of_kind = [r for r in self._rows.values() if r.kind == name]
            self._likes[name] = _Like(of_kind)
        return self._likes[name]


class _Like:
    """Results of one kind by their parameters, and by all but one of these."""

    def __init__(self, receipts: Sequence[Receipt]) -> None:
        self._latest = receipts[-CANDIDATES:]
        self._exact: dict[tuple[int, Items], list[Receipt]] = defaultdict(list)
        self._all_but: dict[Items, list[Receipt]] = defaultdict(list)
        for receipt in receipts:
            items = _items(receipt.params)
            self._exact[receipt.version, items].append(receipt)
            for rest in _all_but_one(items):
                self._all_but[rest].append(receipt)
        self._memo: dict[int, Items] = {}

    def has(self, node: Node) -> bool:
        return (node.kind.version, self._of(node)) in self._exact

    def near(self, node: Node) -> Sequence[Receipt]:
        items = self._of(node)
        exact = self._exact.get((node.kind.version, items))
        if exact:
            return exact[-CANDIDATES:]
        for rest in _all_but_one(items):
            if receipts := self._all_but.get(rest):
                return receipts[-CANDIDATES:]
        return self._latest

    def _of(self, node: Node) -> Items:
        # Nodes of equal parameters share one form.
        if id(node.form) not in self._memo:
            self._memo[id(node.form)] = _items(node.form)
        return self._memo[id(node.form)]


def _items(params: Mapping[str, object]) -> Items:
    return frozenset(
        (name, json.dumps(value, sort_keys=True)) for name, value in params.items()
    )


def _all_but_one(items: Items) -> Iterator[Items]:
    return (items - {item} for item in sorted(items))


def _nearest(node: Node, earlier: Sequence[Receipt]) -> Receipt | None:
    if len(earlier) == 1:
        return earlier[0]

    def distance(receipt: Receipt) -> tuple[bool, int]:
        changes = len(own_changes(node, receipt)) + len(input_changes(node, receipt))
        return receipt.kind != node.kind.name, changes

    return min(reversed(earlier), key=distance, default=None)
