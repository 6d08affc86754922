"""What pydantic found wrong, in plain words and at the place where it was written.

Of a union that fits in no branch, the branch is kept that the value comes closest to;
if it resembles none, the branches are named together, `an integer or 'full'`.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from pydantic import BaseModel, ValidationError

from curvflow.schemas.forms import description, field_names, tags
from curvflow.schemas.nodes import Label
from curvflow.schemas.wording import Wording, worded
from curvflow.schemas.written import Path

# A path in the value, and the branches of unions on the way: depth and name.
_Steps = tuple[Path, tuple[tuple[int, str], ...]]


@dataclass(frozen=True)
class Complaint:
    """One thing wrong with a value.

    Attributes:
        path: within the value.
        wording: what was expected and found.
        missing: nothing is written at `path`.
        key: the key at `path` is wrong rather than its value.
        branches: the unions on the way, as depth in `path` and branch taken.
    """

    path: Path
    wording: Wording
    missing: bool = False
    key: bool = False
    branches: tuple[tuple[int, str], ...] = ()


def complaints(
    error: ValidationError, model: type[BaseModel], value: object
) -> list[Complaint]:
    """List what is wrong with a value.

    Args:
        error: what pydantic raised.
        model: the model that it raised it for.
        value: the plain value that was validated.

    Returns:
        At least one complaint.
    """
    details: Sequence[Any] = error.errors(include_url=False)
    found = [_complaint(model, value, d) for d in details if not _echoes(d)]
    return _likeliest(found, 0)


def _echoes(detail: Any) -> bool:
    # A list is too short for pydantic once its bad items are left out.
    if detail["type"] != "too_short":
        return False
    return bool(len(detail["input"]) >= detail["ctx"]["min_length"])


def _complaint(model: type[BaseModel], value: object, detail: Any) -> Complaint:
    kind, loc = detail["type"], tuple(p for p in detail["loc"] if p != "[key]")
    missing = kind == "missing"
    tail = loc[-1:] if missing else ()
    path, branches = _steps(value, loc[: len(loc) - len(tail)])
    words = worded(detail, description(model, loc))
    found = Complaint((*path, *tail), words, missing, branches=branches)
    if kind == "extra_forbidden" or "[key]" in detail["loc"]:
        names = field_names(model, loc) if kind == "extra_forbidden" else []
        return replace(found, key=True, wording=found.wording.of_key(loc[-1], names))
    if kind == "union_tag_invalid":
        step, key = _tag_step(detail)
        return replace(found, path=(*found.path, *step), key=key)
    if kind == "union_tag_not_found" and isinstance(detail["input"], dict):
        names = tags(model, loc)
        wording = found.wording.of_forms(names, detail["ctx"]["discriminator"])
        return replace(found, wording=wording)
    return found


def _steps(value: Any, loc: Path) -> _Steps:
    # Pydantic's location mixes keys of the value with names of branches of unions; it
    # begins with a key. The reading that finds the most keys is right; of two, the one
    # that finds the last key, `factory` being the name of a branch and its first field.
    if not loc:
        return (), ()
    if not _leads(value, loc[0]):
        return _skipping(value, loc)
    path, branches = max(
        _skipping(value[loc[0]], loc[1:]),
        _steps(value[loc[0]], loc[1:]),
        key=lambda option: len(option[0]),
    )
    return (loc[0], *path), tuple((depth + 1, name) for depth, name in branches)


def _skipping(value: Any, loc: Path) -> _Steps:
    if not loc:
        return (), ()
    path, branches = _steps(value, loc[1:])
    return path, ((0, str(loc[0])), *branches)


def _leads(value: Any, part: Label) -> bool:
    if isinstance(value, list):
        return isinstance(part, int) and part < len(value)
    return isinstance(value, dict) and part in value


def _tag_step(detail: Any) -> tuple[Path, bool]:
    # A tag is the value of a named key, or a function's choice: a value or a key.
    discriminator, tag = detail["ctx"]["discriminator"], detail["ctx"]["tag"]
    if not discriminator.endswith("()"):
        return (discriminator.strip("'"),), False
    for key, item in detail["input"].items():
        if tag in (str(key), str(item)):
            return (key,), tag == str(key)
    return (), False


def _likeliest(found: list[Complaint], level: int) -> list[Complaint]:
    settled = [c for c in found if len(c.branches) <= level]
    unions: dict[Path, dict[str, list[Complaint]]] = defaultdict(dict)
    for complaint in found:
        if len(complaint.branches) > level:
            depth, name = complaint.branches[level]
            union = unions[complaint.path[:depth]]
            union.setdefault(name, []).append(complaint)
    for root, branches in unions.items():
        settled += _of_union(root, list(branches.values()), level)
    return settled


def _of_union(
    root: Path, branches: list[list[Complaint]], level: int
) -> list[Complaint]:
    # A branch that complains about the value itself is not what was meant.
    near = [b for b in branches if all(c.path != root for c in b)]
    if near or len(branches) == 1:
        best = min(
            near or branches, key=lambda b: (sum(c.key or c.missing for c in b), len(b))
        )
        return _likeliest(best, level + 1)
    first = branches[0][0]
    others = [complaint.wording for branch in branches[1:] for complaint in branch]
    return [replace(first, wording=first.wording.joined(others))]
