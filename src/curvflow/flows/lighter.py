"""What to do about a node that is larger than a machine, told by its own estimate."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from typing import Any

from curvflow.schemas.kind import Kind
from curvflow.schemas.nodes import Member
from curvflow.schemas.params import Params
from curvflow.tasks.registry import find

# What saves less than this part is not worth naming, and three remedies are enough.
LEAST, MOST = 0.1, 3


def remedies(kind: Kind, member: Member) -> str:
    """Return what would make a node smaller, what helps most first.

    Each parameter that can be lowered is halved, or switched off, and the memory
    estimated anew; what makes no difference is not named.

    Args:
        kind: of the node.
        member: the node.

    Returns:
        A sentence, such as `Lower num_draws, set keep_draws: false, or take another
        machine.`
    """
    found = find(kind.name)
    whole, data = found.member_bytes(member), found.data_bytes(member)
    saved: dict[str, float] = {"take fewer samples": data / 2}
    for words, name, value in _smaller(member.params):
        params = member.params.model_copy(update={name: value})
        with suppress(Exception):  # what no estimate can be made of is no remedy
            saved[words] = whole - found.member_bytes(replace(member, params=params))
    worth = [words for words in saved if saved[words] >= LEAST * whole]
    best = sorted(worth, key=lambda words: -saved[words])[:MOST]
    told = ", ".join([*(best or ["take a smaller model"]), "or take another machine."])
    return told[0].upper() + told[1:]


def _smaller(params: Params) -> Iterator[tuple[str, str, Any]]:
    """Yield what may be done about a parameter, its name, and a smaller value."""
    for name, field in type(params).model_fields.items():
        value = getattr(params, name)
        if value is True:
            yield f"set {name}: false", name, False
        elif type(value) is int:
            least = max([1, *(getattr(mark, "ge", 1) for mark in field.metadata)])
            if least < value:
                yield f"lower {name}", name, max(least, value // 2)
        elif name == "dtype" and value == "float64":
            yield "set dtype: float32", name, "float32"
