"""GML files: records of nodes and edges."""

from __future__ import annotations

import html
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import NoReturn

import numpy as np

from curvflow.errors import InputError
from curvflow.schemas.graph_heads import DIRECTED, INTEGER, WRONG_WEIGHT
from curvflow.schemas.nodes import Array
from curvflow.tasks.datasets.graph_files.blocks import number_of, texts
from curvflow.tasks.datasets.graph_files.entries import (
    Entries,
    first_wrong_weight,
)
from curvflow.tasks.datasets.graph_files.names import LONGEST_NAME

TOKEN = re.compile(r'"[^"]*"|[\[\]]|[^\s\[\]"]+|"')
COMMENT = re.compile(r"^[ \t]*#.*$", re.MULTILINE)
WEIGHTS = ("weight", "value")


@dataclass
class _Record:
    """A record with the keys that a graph needs, and where it begins."""

    place: int
    values: dict[str, str] = field(default_factory=dict)


def read_gml(content: Array, *, refuses_directed: bool) -> Entries:
    """Return the edges, with the weights that they have as `weight` or `value`.

    Args:
        content: the bytes of the file, compressed or not.
        refuses_directed: a graph that says it is directed is refused.

    Raises:
        InputError: the file is broken, an edge has an end that is no node, or the graph
            is directed.
    """
    file = _File(b"".join(texts(content)))
    if refuses_directed and file.is_directed:
        raise InputError(DIRECTED)
    ids = [file.integer(node, "id", "node") for node in file.nodes]
    position = {number: at for at, number in enumerate(ids)}
    if len(position) < len(ids):
        first = next(at for at, number in enumerate(ids) if position[number] != at)
        place = file.nodes[position[ids[first]]].place
        file.refuse(place, "nodes of distinct ids", str(ids[first]))
    ends = np.zeros((2, len(file.edges)), np.int32)
    for row, key in enumerate(("source", "target")):
        for at, edge in enumerate(file.edges):
            number = file.integer(edge, key, "edge")
            if number not in position:
                file.refuse(edge.place, f"{key}: the id of a node", str(number))
            ends[row, at] = position[number]
    return Entries(
        _names(file, ids),
        ends[0],
        ends[1],
        _weights(file),
        "matrix" if file.is_directed else "once",
    )


def _names(file: _File, ids: list[int]) -> Array:
    """Return labels, if every node has a different one, else ids."""
    labels = [node.values.get("label", "") for node in file.nodes]
    are_names = all(0 < len(label) <= LONGEST_NAME for label in labels)
    if are_names and len(set(labels)) == len(labels):
        return np.array([html.unescape(label) for label in labels], dtype=np.str_)
    return np.array(ids, np.int64)


def _weights(file: _File) -> Array | None:
    keys = [key for key in WEIGHTS if any(key in e.values for e in file.edges)]
    if not keys:
        return None
    lacking = [edge for edge in file.edges if keys[0] not in edge.values]
    if lacking:
        file.refuse(lacking[0].place, f"{keys[0]} of each edge", "none")
    weights = np.zeros(len(file.edges))
    for at, edge in enumerate(file.edges):
        try:
            weights[at] = number_of(edge.values[keys[0]])
        except ValueError:
            file.refuse(edge.place, f"a number as {keys[0]}", edge.values[keys[0]])
    wrong = first_wrong_weight(weights)
    if wrong is not None:
        line = file.line(file.edges[wrong].place)
        raise InputError(WRONG_WEIGHT.format(f"{weights[wrong]:g} in line {line}"))
    return weights


class _File:
    """The records of the first graph of a file."""

    def __init__(self, content: bytes) -> None:
        try:
            text = content.decode()
        except UnicodeDecodeError:
            text = content.decode("latin-1")  # as the format's description has it
        self._text = COMMENT.sub(lambda match: " " * len(match[0]), text)
        self.nodes: list[_Record] = []
        self.edges: list[_Record] = []
        self.is_directed = False
        self._read()

    def line(self, place: int) -> int:
        return self._text.count("\n", 0, place) + 1

    def refuse(self, place: int, expected: str, got: str) -> NoReturn:
        shown = " ".join(got[:60].split())  # a text may have several lines
        raise InputError(
            f"path: expected {expected} in line {self.line(place)}, got '{shown}'. "
            "Mend the file."
        )

    def integer(self, record: _Record, key: str, what: str) -> int:
        value = record.values.get(key, "")
        if not INTEGER.fullmatch(value):
            self.refuse(record.place, f"an integer as {key} of the {what}", value)
        return int(value)

    def _read(self) -> None:
        path: list[str] = []
        record, num_graphs = _Record(0), 0
        for place, key, value in self._pairs():
            if key is None:
                if not path:
                    self.refuse(place, "a key", "]")
                path.pop()
            elif value is None:
                path.append(key)
                num_graphs += path == ["graph"]
                record = self._begun(path, place) if len(path) == 2 else record
            elif path == ["graph"]:
                self.is_directed |= key == "directed" and value != "0"
            elif len(path) == 2:
                record.values[key] = value
        if path or num_graphs != 1:
            got = f"an open {path[-1]}" if path else f"{num_graphs} graphs"
            self.refuse(len(self._text), "one graph that ends", got)

    def _begun(self, path: list[str], place: int) -> _Record:
        """Return a new record, kept if it is a node or an edge of the graph."""
        record = _Record(place)
        if path == ["graph", "node"]:
            self.nodes.append(record)
        elif path == ["graph", "edge"]:
            self.edges.append(record)
        return record

    def _pairs(self) -> Iterator[tuple[int, str | None, str | None]]:
        """Yield key and value, the key alone where a record begins, neither at its end.

        Each comes with its place in the text.
        """
        key = None
        for match in TOKEN.finditer(self._text):
            token, place = match[0], match.start()
            if token == '"' or (token == "[" and key is None):
                self.refuse(place, "a key", token)
            if token == "]" and key is not None:
                self.refuse(place, f"a value of {key}", token)
            if token == "]":
                yield place, None, None
            elif key is None:
                key = token.lower()
            else:
                yield place, key, None if token == "[" else token.strip('"')
                key = None
        if key is not None:
            self.refuse(len(self._text), f"a value of {key}", "none")
