"""Connection of stages: inferred dimensions, checks of reduced and selected ones."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from itertools import islice
from typing import Any

from curvflow.errors import nearest
from curvflow.schemas.checks.effect_checks import check_effects
from curvflow.schemas.checks.input_checks import check_alike, check_drawn, check_inputs
from curvflow.schemas.checks.model_data_checks import check_model_and_data
from curvflow.schemas.checks.name_checks import check_axes, check_names
from curvflow.schemas.kind import MAIN, STAGE, Kind
from curvflow.schemas.study.axes import Axis
from curvflow.schemas.study.document import Document
from curvflow.schemas.study.draft import Draft
from curvflow.schemas.study.edges import resolve_inputs
from curvflow.schemas.study.stage import Stage
from curvflow.schemas.study.yaml_source import Path, short_yaml

EPOCH = "epoch"
# Parameters whose axes every producer must have, since nodes are averaged or compared
# along them; the axes of other parameters may belong to some producers only.
_OF_ALL = ("over", "along", "within")


def connect(
    document: Document, axes: Mapping[str, Axis], drafts: Mapping[str, Draft]
) -> dict[str, Stage]:
    """Return the stages, producers first, with their inputs and inferred dimensions."""
    stages: dict[str, Stage] = {}
    for draft in drafts.values():
        done = {name: stage.inputs for name, stage in stages.items()}
        inputs = resolve_inputs(document, draft, drafts, done)
        named = {name for names in inputs.values() for name in names}
        producers = [stages[name] for name in stages if name in named]
        own_axes = _in_order(axes, {r.axis.name for r in draft.template.references})
        stage = Stage(
            draft.name,
            draft.kind,
            inputs,
            own_axes=own_axes,
            dims=own_axes,
            reduced=(),
            at=draft.at,
            template=draft.template,
            document=document,
            files=draft.files,
            env=draft.env,
            main=_main(producers),
        )
        stages[draft.name] = _infer_dims(stage, producers, axes, stages)
        check_drawn(stages[draft.name], axes)
        check_alike(stages[draft.name], stages)
        check_model_and_data(stage, stages)
    return stages


def _main(producers: list[Stage]) -> tuple[str, ...]:
    """Return the main variables of the kinds taken, unless one is called `main`.

    Of a kind that declares none they are all numbers that tables hold.
    """
    if any(producer.kind.output(MAIN) for producer in producers):
        return ()
    names = (name for p in producers for name in p.kind.main or _tabular(p.kind))
    return tuple(dict.fromkeys(names))


def _tabular(kind: Kind) -> list[str]:
    numbers = (v for v in kind.chosen() if v.dtype != "str" and v.dims != (v.name,))
    return [variable.name for variable in numbers]


def _in_order(axes: Mapping[str, Axis], names: set[str]) -> tuple[str, ...]:
    return tuple(name for name in (*axes, EPOCH) if name in names)


def _infer_dims(
    stage: Stage,
    producers: list[Stage],
    axes: Mapping[str, Axis],
    stages: Mapping[str, Stage],
) -> Stage:
    _refuse_references(stage)
    for labels in stage.template.samples():
        stage.params(labels)
    taken = {dim for producer in producers for dim in producer.dims}
    check_inputs(stage, stages)
    named = set(_reduced(stage, producers))
    _check_per_stage(stage, producers)
    _check_selected(stage, producers)
    check_axes(stage, axes)
    check_names(stage, producers)
    check_effects(stage)
    added = {EPOCH} if stage.at.adds_epoch else set()
    dims = _in_order(axes, {*stage.own_axes, *(taken - named), *added})
    _check_collisions(stage, dims)
    return replace(stage, dims=dims, reduced=_in_order(axes, taken & named))


def _check_collisions(stage: Stage, dims: tuple[str, ...]) -> None:
    inner = {name for v in stage.kind.outputs for name in (v.name, *v.dims)}
    for axis in dims:
        if axis in inner and axis != EPOCH:
            message = (
                f"expected a name that no variable or dimension of stage "
                f"'{stage.name}' has, got '{axis}'"
            )
            path = ("axes", axis)
            raise stage.document.error(path, message, "Rename the axis.", key=True)


def _named_values(stage: Stage, name: str) -> Iterator[tuple[Path, Any]]:
    # All names that a parameter holds at any label, with their paths.
    changes = any(r.path[0] == name for r in stage.template.references)
    for labels in islice(stage.template.samples(), None if changes else 1):
        value = getattr(stage.params(labels), name)
        if isinstance(value, str):
            yield (name,), value
        elif isinstance(value, Mapping):
            yield from (((name, key), item) for key, item in value.items())
        elif value is not None:
            written = stage.document.at(("stages", stage.name, name))
            single = written is None or not isinstance(written.value, list)
            for index, item in enumerate(value):
                yield (name,) if single else (name, index), item


def _refuse_references(stage: Stage) -> None:
    # Dimensions are those of the stage, so no point of the axes may change them.
    for reference in stage.template.references:
        if reference.path[0] in stage.kind.reduces:
            message = f"expected the name of an axis, got ${{{reference.axis.name}}}"
            raise stage.error(reference.path, message, "Write the name itself.")


def _reduced(stage: Stage, producers: list[Stage]) -> Iterator[str]:
    seen: set[str] = set()
    for name in stage.kind.reduces:
        for path, axis in _named_values(stage, name):
            if axis in seen:
                message = f"expected each axis once, got '{axis}' a second time"
                raise stage.error(path, message, "Remove one of them.")
            seen.add(axis)
            if axis in stage.own_axes:
                message = f"expected an axis that no parameter names, got '{axis}'"
                hint = f"Remove ${{{axis}}} from this stage."
                raise stage.error(path, message, hint)
            reduced = [p for p in producers if not _is_single(stage, p, path, axis)]
            if name in _OF_ALL and not stage.kind.reduces_any:
                _check_dim_of_all(stage, reduced, path, axis)
            else:
                _check_dim_of_any(stage, reduced, path, axis)
            yield axis


def _is_single(stage: Stage, producer: Stage, path: Path, axis: str) -> bool:
    """Return whether a producer is taken as it is, and check that it has no such axis.

    Raises:
        StudyError: it has.
    """
    inputs = stage.kind.inputs
    takes = [name for name, names in stage.inputs.items() if producer.name in names]
    if not all(inputs[name].single for name in takes):
        return False
    if axis in producer.dims:
        message = f"expected '{producer.name}' without the axis, got '{axis}'"
        hint = f"'{takes[0]}' is one result, and others are reduced."
        raise stage.error(path, message, hint)
    return True


def _check_dim_of_all(
    stage: Stage, producers: list[Stage], path: Path, axis: str
) -> None:
    for producer in producers:
        known = producer.dims
        if axis not in known:
            message = (
                f"expected a dimension of '{producer.name}', got {short_yaml(axis)}"
            )
            hint = nearest(axis, known) or "It has none."
            raise stage.error(path, message, hint)


def _check_dim_of_any(
    stage: Stage, producers: list[Stage], path: Path, axis: str
) -> None:
    known = {dim for p in producers for dim in p.dims}
    if stage.kind.selects:
        # It may be a dimension of a selected variable within nodes, such as the epochs
        # of a training curve.
        known |= {dim for p in producers for v in p.kind.outputs for dim in v.dims}
    if stage.kind.per_stage:
        known.add(STAGE)
    if axis not in known:
        message = f"expected a dimension of the stages taken, got {short_yaml(axis)}"
        raise stage.error(path, message, nearest(axis, known) or "They have none.")


def _check_per_stage(stage: Stage, producers: list[Stage]) -> None:
    known = {producer.name for producer in producers}
    for name in stage.kind.per_stage:
        value = getattr(stage.params(next(iter(stage.template.samples()))), name)
        if not isinstance(value, Mapping | tuple):
            continue
        for index, given in enumerate(value):
            if given not in known:
                is_key = isinstance(value, Mapping)
                path = (name, given if is_key else index)
                message = f"expected a stage taken, got {short_yaml(given)}"
                raise stage.error(path, message, nearest(given, known), key=is_key)
        if isinstance(value, Mapping) and (left := known - set(value)):
            message = f"expected each stage taken, got none of {min(left)}"
            raise stage.error((name,), message, "Name it, or leave it out of `of`.")


def _check_selected(stage: Stage, producers: list[Stage]) -> None:
    for name in stage.kind.selects:
        for path, variable in _named_values(stage, name):
            # A mapping has a variable for each stage.
            of = [p for p in producers if p.name == path[-1]] or producers
            outputs = [v for producer in of for v in producer.kind.outputs]
            known = {v.name for v in outputs if v.dtype != "str" and v.file is None}
            if variable not in known:
                is_there = any(v.name == variable for v in outputs)
                what = "number" if is_there else "variable"
                message = f"expected a {what} of the stages taken, got '{variable}'"
                raise stage.error(path, message, nearest(variable, known))
