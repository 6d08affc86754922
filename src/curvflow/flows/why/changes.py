"""What differs between a node and an earlier result, old value -> new value."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from curvflow.flows.graph import Node
from curvflow.flows.lookup import input_digests
from curvflow.schemas.records.receipts import Receipt
from curvflow.schemas.study.yaml_source import flow

CONTENT = ".sha256"  # how a key names what a file holds
DIGEST = re.compile(r"[0-9a-f]{64}")


@dataclass(frozen=True, slots=True)
class Change:
    """One difference.

    Attributes:
        what: `kind`, `version`, `parameter`, `file`, `input`, `struck off`, `failed`,
            `lost`, `removed` or `new`.
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
    """List what differs in the node itself: kind, version, parameters and files.

    Args:
        node: its inputs need not be known.
        earlier: a receipt.

    Returns:
        The changes; none if only inputs can differ.
    """
    found = []
    kind = node.kind
    if kind.name != earlier.kind:
        text = f"kind {earlier.kind} -> {kind.name}"
        found.append(Change("kind", text, "", earlier.kind, kind.name))
    elif kind.version != earlier.version:
        text = f"version {earlier.version} -> {kind.version}"
        found.append(Change("version", text, "", earlier.version, kind.version))
    return found + list(_parameters(earlier.params, node.form))


def input_changes(node: Node, earlier: Receipt) -> list[Change]:
    """List the inputs whose content differs; none while one is not known yet.

    Args:
        node: a node.
        earlier: a receipt.

    Returns:
        One change per input, by name.
    """
    digests = input_digests(node)
    if digests is None:  # a node that waits may yet find its inputs unchanged
        return []
    names = sorted(digests.keys() | earlier.inputs.keys())
    return [
        Change("input", f"input {name} changed", name)
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
    return "nothing" if value is _ABSENT else flow(value)


def _plain(value: object) -> object:
    return None if value is _ABSENT else value
