"""Edges between stages: their types, the producers of inputs, topological order."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import NoReturn

from curvflow.errors import nearest
from curvflow.schemas.kind import Kind, Variable
from curvflow.schemas.kinds import all_kinds
from curvflow.schemas.nodes import (
    DrawnLosses,
    Eigenvalues,
    Eigenvectors,
    Localized,
    NodeData,
    Numbers,
    Trajectory,
)
from curvflow.schemas.study.axes import Axis
from curvflow.schemas.study.document import Document
from curvflow.schemas.study.draft import Draft, read_draft
from curvflow.schemas.study.yaml_source import Path, short_yaml

MAX_STAGES = 1_000


def read_drafts(document: Document, axes: Mapping[str, Axis]) -> dict[str, Draft]:
    """Read all stages in topological order, else in the order written."""
    entries = document.mapping(("stages",))
    if len(entries) > MAX_STAGES:
        message = f"expected at most {MAX_STAGES:,} stages, got {len(entries):,}"
        raise document.error(("stages",), message, "Use axes.", key=True)
    if not entries:
        message = "expected at least one stage, got none"
        raise document.error(("stages",), message, "Add one under 'stages:'.")
    drafts = {str(name): read_draft(document, name, axes) for name in entries}
    for draft in drafts.values():
        _check_stages(document, draft, drafts)
    ordered: dict[str, Draft] = {}
    for name in drafts:
        _visit(document, name, drafts, ordered)
    return ordered


def _check_stages(
    document: Document, draft: Draft, drafts: Mapping[str, Draft]
) -> None:
    for name, stages in draft.given.items():
        for index, stage in enumerate(stages):
            if stage not in drafts:
                path = input_path(document, draft.name, name, index)
                others = [other for other in drafts if other != draft.name]
                message = f"expected a stage of the study, got {short_yaml(stage)}"
                raise document.error(path, message, nearest(stage, others))


def input_path(document: Document, stage: str, name: str, index: int) -> Path:
    """Return the path at which the `index`-th producer of an input is written."""
    path = ("stages", stage, name)
    item = document.at(path)
    return (*path, index) if item and isinstance(item.value, list) else path


def _visit(
    document: Document,
    name: str,
    drafts: Mapping[str, Draft],
    ordered: dict[str, Draft],
) -> None:
    """Put a stage behind its producers, depth first, without recursion."""
    above = {name: _producers_of(drafts[name])}
    while above and name not in ordered:
        last = next(reversed(above))
        producer = next(above[last], None)
        if producer is None:
            ordered[last] = drafts[last]
            del above[last]
        elif producer in above:
            _refuse_circle(document, [*above], producer)
        elif producer not in ordered:
            above[producer] = _producers_of(drafts[producer])


def _producers_of(draft: Draft) -> Iterator[str]:
    return (producer for stages in draft.given.values() for producer in stages)


def _refuse_circle(document: Document, above: list[str], name: str) -> NoReturn:
    circle = " -> ".join((*above[above.index(name) :], name))
    message = f"expected stages that do not need their own results, got {circle}"
    hint = "An arrow leads to what a stage takes."
    raise document.error(("stages", name), message, hint, key=True)


Inputs = Mapping[str, tuple[str, ...]]

# Largest number of kinds that a message lists.
FEW = 3


def numeric_variables(kind: Kind) -> list[Variable]:
    """Return the variables of a kind without text, bulk arrays and files."""
    return [v for v in kind.outputs if v.dtype != "str" and not (v.bulk or v.file)]


def is_compatible(edge: type[NodeData], producer: Kind) -> bool:
    """Return whether a kind's result can be taken as an edge type."""
    if issubclass(producer.returns, edge):
        return True
    if edge is Trajectory:
        return producer.checkpoints is not None
    if edge in (Eigenvalues, Eigenvectors, DrawnLosses, Localized):
        return all(producer.output(name) for name in edge.takes or ())
    return edge is Numbers and bool(numeric_variables(producer))


def resolve_inputs(
    document: Document,
    draft: Draft,
    drafts: Mapping[str, Draft],
    done: Mapping[str, Inputs],
) -> Inputs:
    """Return the producers of each input, followed ones filled in and types checked."""
    inputs = {}
    for name, declared in draft.kind.inputs.items():
        if name in draft.given:
            _check_exclusive(document, draft, name)
            inputs[name] = draft.given[name]
        elif declared.followed(draft.given):
            inputs[name] = _followed_input(document, draft, name, done)
        elif declared.optional or _alternative(draft, name):
            continue
        else:
            _refuse_missing(document, draft, name, drafts)
        _check_edge(document, draft, name, inputs[name], drafts)
    return inputs


def _alternative(draft: Draft, name: str) -> str | None:
    """Return the input given as alternative to this one, or to the one it follows."""
    declared = draft.kind.inputs[name]
    for alternative in declared.unless:
        if alternative in draft.given:
            return alternative
    if declared.sources and not declared.followed(draft.given):
        return _alternative(draft, declared.sources[0])
    return None


def _refuse_missing(
    document: Document, draft: Draft, name: str, drafts: Mapping[str, Draft]
) -> NoReturn:
    names = (name, *draft.kind.inputs[name].unless)
    if len(names) == 1:
        edge = draft.kind.inputs[name].edge.__name__
        message = f"expected a stage that returns {edge}, got none"
        hint = _candidates(draft, name, drafts)
        raise document.error(("stages", draft.name, name), message, hint)
    producers = [(option, _producers(draft, option, drafts)) for option in names]
    listed = [f"'{option}: {stages[0]}'" for option, stages in producers if stages]
    message = f"expected one of {', '.join(map(repr, names))}, got none"
    hint = f"Add {' or '.join(listed)}." if listed else "No stage returns what fits."
    raise document.error(("stages", draft.name), message, hint, key=True)


def _check_exclusive(document: Document, draft: Draft, name: str) -> None:
    excluded = (e for e in draft.kind.inputs[name].excludes if e in draft.given)
    if alternative := _alternative(draft, name) or next(excluded, None):
        message = f"'{name}' cannot be combined with '{alternative}'"
        path = ("stages", draft.name, name)
        follows = draft.kind.inputs[name].follows
        hint = f"Remove '{name}'." if follows else "Remove one of them."
        raise document.error(path, message, hint, key=True)


def _followed_input(
    document: Document, draft: Draft, name: str, done: Mapping[str, Inputs]
) -> tuple[str, ...]:
    declared = draft.kind.inputs[name]
    sources = draft.given[str(declared.followed(draft.given))]
    producers = [stage for source in sources for stage in done[source].get(name, ())]
    names = tuple(dict.fromkeys(producers))
    if names and (len(names) == 1 or declared.many):
        return names
    got = ", ".join(names) or "none"
    message = f"expected the one '{name}' of {', '.join(sources)}, got {got}"
    path = ("stages", draft.name, name)
    raise document.error(path, message, f"Give '{name}' here.")


def _check_edge(
    document: Document,
    draft: Draft,
    name: str,
    producers: tuple[str, ...],
    drafts: Mapping[str, Draft],
) -> None:
    edge = draft.kind.inputs[name].edge
    for index, producer in enumerate(producers):
        kind = drafts[producer].kind
        if not is_compatible(edge, kind):
            path = input_path(document, draft.name, name, index)
            message = (
                f"expected a stage that returns {edge.__name__}, got '{producer}', "
                f"whose kind {kind.name} returns {kind.returns.__name__}"
            )
            hint = _candidates(draft, name, drafts)
            raise document.error(path, message, hint)


def _candidates(draft: Draft, name: str, drafts: Mapping[str, Draft]) -> str:
    candidates = [f"'{producer}'" for producer in _producers(draft, name, drafts)]
    if candidates:
        return f"Of these there are: {', '.join(candidates)}."
    edge = draft.kind.inputs[name].edge
    kinds = [kind.name for kind in all_kinds().values() if is_compatible(edge, kind)]
    if not kinds:
        return "There is none."
    few = kinds if len(kinds) <= FEW else [kinds[0], "the like"]
    return f"There is none. Add a stage of {' or '.join(few)}."


def _producers(draft: Draft, name: str, drafts: Mapping[str, Draft]) -> list[str]:
    edge = draft.kind.inputs[name].edge
    others = [other for other in drafts.values() if other.name != draft.name]
    return [other.name for other in others if is_compatible(edge, other.kind)]
