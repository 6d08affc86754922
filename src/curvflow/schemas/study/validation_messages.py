"""Messages for pydantic's validation errors, in a study's words and at its lines.

Of a union that fits in no branch, the branch is kept that the value comes closest to;
if it resembles none, the branches are named together, `an integer or 'full'`.
"""

from __future__ import annotations

import math
import re
import types
import typing
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Annotated, Any, Literal

from pydantic import BaseModel, Tag, ValidationError
from pydantic.fields import FieldInfo

from curvflow.errors import nearest
from curvflow.schemas.by_name import ByName
from curvflow.schemas.nodes import Label
from curvflow.schemas.study.yaml_source import Path, short_yaml

_PLAIN = {
    "bool_parsing": "true or false",
    "bool_type": "true or false",
    "dict_type": "a mapping",
    "finite_number": "a finite number",
    "float_parsing": "a number",
    "float_type": "a number",
    "int_from_float": "an integer",
    "int_parsing": "an integer",
    "int_type": "an integer",
    "list_type": "a list",
    "mapping_type": "a mapping",
    "model_attributes_type": "a mapping",
    "model_type": "a mapping",
    "none_required": "null",
    "string_type": "text",
    "tuple_type": "a list",
    "union_tag_not_found": "a mapping",
}
_BOUNDS = {"gt": "above", "ge": "of at least", "lt": "below", "le": "of at most"}
# By the form of what is expected.
_REMEDIES = {
    "Raise it.": r"(an integer|a number) (above|of at least) \S+",
    "Lower it.": r"(an integer|a number) (below|of at most) \S+",
    "Write lines of the form 'key: value'.": "a mapping",
    "Put it in brackets.": "a list",
    "Add to it.": "(a list|text) of at least .*",
    "Shorten it.": "(a list|text) of at most .*",
    "Take one of them.": "one of .*",
}
_LENGTHS = {
    "string_too_long": "text of at most {max_length} characters",
    "string_too_short": "text of at least {min_length} characters",
    "string_pattern_mismatch": "text of the form {pattern}",
    "multiple_of": "a multiple of {multiple_of}",
    "too_long": "a list of at most {max_length} values",
    "too_short": "a list of at least {min_length} values",
}


# Of the second form, `<a> cannot be combined with <b>. <Remedy.>`
COMBINED = " cannot be combined with "


@dataclass(frozen=True)
class Wording:
    """Parts of a message: expected, got, hint.

    Attributes:
        expected: such as `an integer`.
        got: such as `'64'`.
        hint: what to do.
        sentence: the whole message, where the model itself words it.
    """

    expected: str
    got: str
    hint: str = ""
    sentence: str = ""

    @property
    def message(self) -> str:
        """`expected <what>, got <value>`."""
        return self.sentence or f"expected {self.expected}, got {self.got}"

    def with_remedy(self) -> Wording:
        """Return the wording with a remedy, for a value out of its bounds or type."""
        if self.hint or self.sentence:
            return self
        if self.got == "none":
            return replace(self, hint="Add it.")
        for remedy, form in _REMEDIES.items():
            if re.fullmatch(form, self.expected):
                return replace(self, hint=remedy)
        return replace(self, hint="Write such a value.")

    def of_key(self, key: Label, known: Iterable[str]) -> Wording:
        """Return the wording for an unknown key, with the closest known one as hint."""
        names = list(known)
        expected = "a key that is known here" if names else self.expected
        hint = nearest(str(key), names)
        if key == "kind" and "factory" in names:
            hint = "A factory has no kind beside it. Remove kind."
        return replace(self, expected=expected, got=short_yaml(key), hint=hint)

    def of_forms(self, names: Iterable[str], tag: str) -> Wording:
        """Return the wording for a mapping without the key that names its form."""
        forms = ", ".join(repr(name) for name in names)
        hint = "" if tag.endswith("()") else f"Add {tag} to it."
        return replace(self, expected=f"one of the forms {forms}", hint=hint)

    def joined(self, others: Iterable[Wording]) -> Wording:
        """Return one wording for a value that fits no branch of its union."""
        every = dict.fromkeys(wording.expected for wording in (self, *others))
        hints = [wording.hint for wording in (self, *others) if wording.hint]
        return replace(self, expected=" or ".join(every), hint="".join(hints[:1]))


def wording_of(detail: Any, meaning: str = "") -> Wording:
    """Return the wording of one entry of `ValidationError.errors()`."""
    kind, context, value = detail["type"], detail.get("ctx", {}), detail["input"]
    if kind in ("value_error", "assertion_error"):
        return _validator_wording(str(context["error"]), value)
    if kind == "missing":
        name = detail["loc"][-1]
        what = f" ({meaning})" if meaning else ""
        hint = f"Add '{name}: ...'{what}." if isinstance(name, str) else ""
        return Wording("a value", "none", hint)
    if kind == "union_tag_invalid":
        return _choice(context["expected_tags"], context["tag"])
    if kind in ("literal_error", "enum"):
        return _choice(context["expected"], value)
    expected = _expected(kind, context, detail["msg"])
    hint = _hint(expected, value)
    if kind == "string_pattern_mismatch" and meaning:
        hint = f"It is {meaning}."
    return Wording(expected, short_yaml(value), hint)


def _validator_wording(text: str, value: object) -> Wording:
    # Our own validators use one of the two forms of message already.
    message, _, hint = text.rstrip(".").partition(". ")
    if not (message.startswith("expected") or COMBINED in message):
        message = f"expected a valid value, got {short_yaml(value)} ({message})"
    if hint and not hint.endswith("?"):
        hint += "."
    return Wording("", "", hint, message)


def _choice(expected: str, value: object) -> Wording:
    names = re.findall(r"'([^']*)'", expected)
    listed = expected.replace(" or ", ", ")
    hint = nearest(str(value), names) if isinstance(value, str) else ""
    what = f"one of {listed}" if "," in listed else listed
    # The names are in the message already: a hint is worth a line if one is close.
    return Wording(what, short_yaml(value), hint if hint.startswith("Did") else "")


def _expected(kind: str, context: Any, message: str) -> str:
    if kind in _PLAIN:
        return _PLAIN[kind]
    if kind in _LENGTHS:
        return re.sub(r"\b1 (\w+)s$", r"1 \1", _LENGTHS[kind].format(**context))
    for name, words in _BOUNDS.items():
        if name in context:
            bound = context[name]
            number = "an integer" if isinstance(bound, int) else "a number"
            return f"{number} {words} {bound:.6g}"
    words = re.sub(r"^Input should be (a valid )?", "", message)
    return words if words != message else f"a valid value ({message})"


def _hint(expected: str, value: object) -> str:
    number = {"an integer": int, "a number": float}.get(expected)
    if number is None:
        return ""
    if isinstance(value, float) and value.is_integer():
        return f"Write {value:.0f}."
    return (
        "Remove the quotes." if isinstance(value, str) and _reads(number, value) else ""
    )


def _reads(number: Callable[[str], float], text: str) -> bool:
    try:
        return math.isfinite(number(text))
    except ValueError:
        return False


# A path in the value, and the branches of unions on the way: depth and name.
_Steps = tuple[Path, tuple[tuple[int, str], ...]]


@dataclass(frozen=True)
class Problem:
    """One problem of a value.

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


def find_problems(
    error: ValidationError, model: type[BaseModel], value: object
) -> list[Problem]:
    """Return the problems of a value, at least one, after a ValidationError."""
    details: Sequence[Any] = error.errors(include_url=False)
    problems = [_problem(model, value, d) for d in details if not _is_consequence(d)]
    likely = _most_likely(problems, 0)
    return [replace(p, wording=p.wording.with_remedy()) for p in likely]


def _is_consequence(detail: Any) -> bool:
    # A list is too short for pydantic once its bad items are left out.
    if detail["type"] != "too_short":
        return False
    return bool(len(detail["input"]) >= detail["ctx"]["min_length"])


def _problem(model: type[BaseModel], value: object, detail: Any) -> Problem:
    kind, loc = detail["type"], tuple(p for p in detail["loc"] if p != "[key]")
    missing = kind == "missing"
    tail = loc[-1:] if missing else ()
    path, branches = _steps(value, loc[: len(loc) - len(tail)])
    words = wording_of(detail, field_description(model, loc))
    problem = Problem((*path, *tail), words, missing, branches=branches)
    if kind == "extra_forbidden" or "[key]" in detail["loc"]:
        names = field_names(model, loc) if kind == "extra_forbidden" else []
        return replace(
            problem, key=True, wording=problem.wording.of_key(loc[-1], names)
        )
    if kind == "union_tag_invalid":
        step, key = _tag_step(detail)
        return replace(problem, path=(*problem.path, *step), key=key)
    if kind == "union_tag_not_found" and isinstance(detail["input"], dict):
        names = branch_names(model, loc)
        wording = problem.wording.of_forms(names, detail["ctx"]["discriminator"])
        return replace(problem, wording=wording)
    return problem


def _steps(value: Any, loc: Path) -> _Steps:
    # Pydantic's location mixes keys of the value with names of branches of unions; it
    # begins with a key. The reading that finds the most keys is right; of two, the one
    # that finds the last key, `factory` being the name of a branch and its first field.
    if not loc:
        return (), ()
    if not _has_step(value, loc[0]):
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


def _has_step(value: Any, part: Label) -> bool:
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


def _most_likely(problems: list[Problem], level: int) -> list[Problem]:
    settled = [c for c in problems if len(c.branches) <= level]
    unions: dict[Path, dict[str, list[Problem]]] = defaultdict(dict)
    for problem in problems:
        if len(problem.branches) > level:
            depth, name = problem.branches[level]
            union = unions[problem.path[:depth]]
            union.setdefault(name, []).append(problem)
    for root, branches in unions.items():
        settled += _of_union(root, list(branches.values()), level)
    return settled


def _of_union(root: Path, branches: list[list[Problem]], level: int) -> list[Problem]:
    # A branch that complains about the value itself is not what was meant.
    near = [b for b in branches if all(c.path != root for c in b)]
    if near or len(branches) == 1:
        best = min(
            near or branches, key=lambda b: (sum(c.key or c.missing for c in b), len(b))
        )
        return _most_likely(best, level + 1)
    first = branches[0][0]
    others = [problem.wording for branch in branches[1:] for problem in branch]
    return [replace(first, wording=first.wording.joined(others))]


@dataclass(frozen=True)
class Branch:
    """One model of a union.

    Attributes:
        model: the model.
        tag: its name in a union, if it was given one.
    """

    model: type[BaseModel]
    tag: str | None = None

    def names(self) -> list[str]:
        """Return its names in pydantic's locations: tag, literals, class."""
        literals = [
            typing.get_args(info.annotation)
            for info in self.model.model_fields.values()
            if typing.get_origin(info.annotation) is Literal
        ]
        # What tells the forms apart has one value in each; a choice has several.
        names = [str(value) for those in sorted(literals, key=len) for value in those]
        return [*([self.tag] if self.tag else []), *names, self.model.__name__]


def field_names(model: type[BaseModel], loc: tuple[Any, ...]) -> list[str]:
    """Return the sorted field names of the models that hold a misspelt field."""
    forms = _branches_at(model, loc[:-1])
    return sorted({info for f in forms for info in _keys(f.model)})


def branch_names(model: type[BaseModel], loc: tuple[Any, ...]) -> list[str]:
    """Return the names of the union branches of a value, in the order declared."""
    return [form.names()[0] for form in _branches_at(model, loc)]


def field_description(model: type[BaseModel], loc: tuple[Any, ...]) -> str:
    """Return the description of a field, empty if it has none."""
    for form in _branches_at(model, loc[:-1]):
        info = form.model.model_fields.get(loc[-1]) if loc else None
        if info is not None:
            return info.description or ""
    return ""


def _keys(model: type[BaseModel]) -> list[str]:
    return [info.alias or name for name, info in model.model_fields.items()]


def _branches_at(model: type[BaseModel], loc: tuple[Any, ...]) -> list[Branch]:
    forms = [Branch(model)]
    for part in loc:
        # A branch of a union comes before the field of that name within it.
        branch = [f for f in forms if len(forms) > 1 and part in f.names()]
        inner = [
            inside
            for form in forms
            for name, info in form.model.model_fields.items()
            if part in (name, info.alias)
            for inside in _branches(_whole(info))
        ]
        forms = branch or inner or forms
    return forms


def _whole(info: FieldInfo) -> Any:
    """Return the annotation of a field, with all models of one that is `ByName`."""
    unions = [mark.union() for mark in info.metadata if isinstance(mark, ByName)]
    return unions[0] if unions else info.annotation


def _branches(annotation: Any, tag: str | None = None) -> Iterator[Branch]:
    origin, inside = typing.get_origin(annotation), typing.get_args(annotation)
    if origin is Annotated:
        named = [mark.tag for mark in inside[1:] if isinstance(mark, Tag)]
        yield from _branches(inside[0], named[0] if named else tag)
    elif isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield Branch(annotation, tag)
    elif origin in (typing.Union, types.UnionType, list, tuple, dict):
        for part in inside:
            yield from _branches(part)
