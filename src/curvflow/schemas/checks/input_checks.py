"""Checks that parameters and inputs are consistent, and that none is ignored.

Also that figures and checkpoints are of a number that can be drawn and kept.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from itertools import combinations

from curvflow.schemas.models import AnyModel
from curvflow.schemas.nodes import Figure, Label, Trajectory, Weights
from curvflow.schemas.params import Params
from curvflow.schemas.study.axes import Axis
from curvflow.schemas.study.draft import parameter_names
from curvflow.schemas.study.stage import Stage
from curvflow.schemas.study.yaml_source import short_yaml


def check_inputs(stage: Stage, by_name: Mapping[str, Stage]) -> None:
    """Check parameters against inputs, and inputs against their producers.

    Args:
        stage: that takes them.
        by_name: all stages that it may take, and what these take.

    Raises:
        StudyError: they do not fit.
    """
    _check_epochs(stage, by_name)
    _check_wanted(stage)
    for name, taken in stage.inputs.items():
        for producer in taken:
            _check_settled(stage, name, by_name[producer])
            _check_kept(stage, name, by_name[producer])
            _check_checkpoints(stage, name, by_name[producer])
            _check_lacking(stage, name, by_name[producer], by_name)
            _check_carried(stage, name, by_name[producer])
            _check_shared(stage, name, by_name)


def _check_epochs(stage: Stage, by_name: Mapping[str, Stage]) -> None:
    inputs = stage.kind.inputs
    if stage.at.adds_epoch and stage.kind.checkpoints is not None:
        message = "expected 'final' or one epoch to begin training with, got several"
        raise stage.error(("at",), message, "Write one epoch, without brackets.")
    if stage.at.choice == "final":
        return
    weights = [
        by_name[producer]
        for name, taken in stage.inputs.items()
        if issubclass(inputs[name].edge, Weights)
        for producer in taken
    ]
    if any(producer.kind.checkpoints is not None for producer in weights):
        return
    given = " and ".join(f"'{name}'" for name in stage.inputs)
    if weights:
        given = f"'{weights[0].name}' of {weights[0].kind.name}, which has none"
    message = f"expected weights to choose the epochs of, got {given}"
    raise stage.error(("at",), message, "Remove 'at'.", key=True)


def _check_wanted(stage: Stage) -> None:
    for name, declared in stage.kind.inputs.items():
        if declared.wanted is None:
            continue
        points = stage.template.samples()
        is_wanted = any(declared.wanted(stage.params(labels)) for labels in points)
        edge, given = declared.edge.__name__, stage.inputs.get(name, ())
        if is_wanted and not given:
            message = f"expected a stage that returns {edge}, got none"
            hint = f"Add '{name}: ...', or change the parameters that need it."
            raise stage.error((name,), message, hint)
        if given and not is_wanted:
            message = (
                f"{name} '{given[0]}' cannot be combined with the other parameters"
            )
            hint = "Remove it, or set the parameters that need it."
            raise stage.error((name,), message, hint)


def _check_settled(stage: Stage, name: str, producer: Stage) -> None:
    fields = stage.kind.params.model_fields
    settled = [param for param in stage.kind.inputs[name].settles if param in fields]
    for labels in stage.template.samples():
        params = stage.params(labels)
        for param in settled:
            value = getattr(params, param)
            if value == fields[param].default:
                continue
            message = f"'{param}' cannot be combined with '{name}'"
            hint = "Remove it."
            if param in parameter_names(producer.kind):
                hint = f"Remove it, or give it to '{producer.name}'."
            raise stage.error((param,), message, hint, labels=labels)


def _check_kept(stage: Stage, name: str, producer: Stage) -> None:
    if not (keeps := stage.kind.inputs[name].keeps):
        return
    if keeps not in parameter_names(producer.kind):
        return
    points = producer.template.samples()
    if not all(getattr(producer.params(labels), keeps) for labels in points):
        message = f"expected a stage with {keeps}: true, got '{producer.name}' without"
        hint = f"Give '{producer.name}' {keeps}: true."
        raise stage.error((name,), message, hint)


def _check_checkpoints(stage: Stage, name: str, producer: Stage) -> None:
    kept = producer.kind.checkpoints
    if kept is None or not issubclass(stage.kind.inputs[name].edge, Trajectory):
        return
    points = producer.template.samples()
    epochs = [kept(producer.params(labels)) for labels in points]
    if any(known is not None and len(known) < 2 for known in epochs):
        message = f"expected a stage with checkpoints, got '{producer.name}' without"
        hint = f"Give '{producer.name}' checkpoints: {{every: n}}."
        raise stage.error((name,), message, hint)


def _check_carried(stage: Stage, name: str, producer: Stage) -> None:
    # Weights to begin with are of the very network, whatever its initial ones.
    if not issubclass(stage.kind.inputs[name].edge, Weights):
        return
    for path in stage.kind.carries:
        if path not in producer.kind.carries:
            continue
        for labels, point in _together(stage, producer):
            consumer, producing = (
                getattr(params, path)
                for params in (stage.params(labels), producer.params(point))
            )
            if not isinstance(consumer, AnyModel):
                continue  # another loss may go on from there
            consumer_fields, producer_fields = (
                model.model_dump(exclude={"init"}) for model in (consumer, producing)
            )
            for key in {**producer_fields, **consumer_fields}:
                if consumer_fields.get(key) == producer_fields.get(key):
                    continue
                expected, got = (
                    f"{key} {short_yaml(x.get(key))}"
                    for x in (producer_fields, consumer_fields)
                )
                message = (
                    f"expected the {path} of '{producer.name}', with {expected}, "
                    f"got {got}"
                )
                hint = "Train it from there with the same model."
                raise stage.error((path,), message, hint, labels=labels)


def _together(
    stage: Stage, producer: Stage
) -> Iterator[tuple[Mapping[str, Label], Mapping[str, Label]]]:
    """Yield pairs of points of two stages that agree on their common axes."""
    for labels in stage.template.samples():
        for point in producer.template.samples():
            if _agree(labels, point):
                yield labels, point


def _check_lacking(
    stage: Stage, name: str, producer: Stage, stages: Mapping[str, Stage]
) -> None:
    lacking = stage.kind.inputs[name].lacking
    if lacking is None:
        return
    for point, taken in _in_effect(producer, stages):
        for labels in stage.template.samples():
            if not _agree(labels, point):
                continue
            for path, message, hint in lacking(
                stage.params(labels), producer.name, taken
            ):
                raise stage.error(path, message, hint, labels=labels)


def _in_effect(
    producer: Stage, stages: Mapping[str, Stage]
) -> Iterator[tuple[Mapping[str, Label], Params]]:
    """Yield points of a stage and its parameters there.

    Those that an input settles are as the stage taken has them, and so are those that
    are null where that takes them from an input.
    """
    points = [(at, producer.params(at)) for at in producer.template.samples()]
    for name, taken in producer.inputs.items():
        nulls = [p for p, of in producer.kind.null_takes.items() if of == name]
        named = (*producer.kind.inputs[name].settles, *nulls)
        for source in (stages[stage_name] for stage_name in taken):
            kinds = producer.kind, source.kind
            shared = {*named}.intersection(*(k.params.model_fields for k in kinds))
            if not shared:
                continue
            points = [
                ({**at, **there}, _with(params, given, shared, nulls))
                for there, given in _in_effect(source, stages)
                for at, params in points
                if _agree(at, there)
            ]
    yield from points


def _with(
    params: Params, given: Params, shared: Collection[str], nulls: Collection[str]
) -> Params:
    update = {
        name: getattr(given, name)
        for name in shared
        if name not in nulls or getattr(params, name) is None
    }
    return params.model_copy(update=update)


def check_alike(stage: Stage, stages: Mapping[str, Stage]) -> None:
    """Refuse results of different parameters where these must be alike.

    Args:
        stage: with the axes that it reduces over.
        stages: all that it may take, and what these take.

    Raises:
        StudyError: a parameter differs, or is left to each of several results.
    """
    if stage.kind.alike is None:
        return
    params = stage.params(next(iter(stage.template.samples())))
    names = dict.fromkeys(name for taken in stage.inputs.values() for name in taken)
    for field in stage.kind.alike(params):
        given = [
            value for name in names for value in _settled(stages[name], field, stages)
        ]
        _refuse_measured(stage, field, given, is_of_many=len(names) > 1)
        _refuse_different(stage, field, given)


# The stage that has a parameter, its labels, and the value.
_Settled = tuple[Stage, Mapping[str, Label], object]


def _refuse_measured(
    stage: Stage, field: str, given: Sequence[_Settled], *, is_of_many: bool
) -> None:
    for source, _, value in given:
        if value is None and (is_of_many or {*source.dims} & {*stage.reduced}):
            message = (
                f"expected one {field} of what is taken together, got what "
                f"'{source.name}' measures each time"
            )
            raise stage.error((), message, f"Give it a {field}.", key=True)


def _refuse_different(stage: Stage, field: str, given: Sequence[_Settled]) -> None:
    for (left, place, value), (right, at, second) in combinations(given, 2):
        shared = place.keys() & at.keys() - {*stage.reduced}
        if value != second and all(place[axis] == at[axis] for axis in shared):
            got = " and ".join(short_yaml(x) for x in (value, second))
            message = f"expected one {field} of what is taken together, got {got}"
            both = " and ".join(dict.fromkeys((left.name, right.name)))
            raise stage.error((), message, f"Give {both} one.", key=True)


def _settled(
    producer: Stage, field: str, stages: Mapping[str, Stage]
) -> Iterator[_Settled]:
    """Yield values of a parameter, or of the stage that settles it where it is null."""
    settling = producer.kind.null_takes.get(field, "")
    for labels in producer.template.samples():
        params = producer.params(labels)
        value = getattr(params, field, None)
        if value is not None:
            yield producer, labels, value
            continue
        for name in producer.inputs.get(settling, ()):
            source = stages[name]
            for point in source.template.samples():
                given = source.params(point)
                if hasattr(given, field) and _agree(labels, point):
                    yield source, {**labels, **point}, getattr(given, field)


def _agree(labels: Mapping[str, Label], point: Mapping[str, Label]) -> bool:
    """Return whether two points of the axes agree on those that both have."""
    return all(labels[axis] == point[axis] for axis in labels.keys() & point.keys())


def _check_shared(stage: Stage, name: str, by_name: Mapping[str, Stage]) -> None:
    """Check that two inputs are of the same network, data, epochs and parameters."""
    shares = stage.kind.inputs[name].shares
    if shares is not None and not shares.of:
        for producer in stage.inputs[name]:
            _check_same(stage, name, (by_name[producer], stage), shares.inputs)
    if shares is None or shares.of not in stage.inputs:
        return
    (first,), (second,) = stage.inputs[name], stage.inputs[shares.of]
    first_stage, second_stage = by_name[first], by_name[second]
    _check_same(stage, name, (first_stage, second_stage), shares.inputs)
    for labels, there in _together(first_stage, second_stage):
        for param in shares.params:
            given, expected = (
                getattr(of.params(point), param, None)
                for of, point in ((first_stage, labels), (second_stage, there))
            )
            if given != expected:
                message = (
                    f"expected a stage with the {param} of '{second}', "
                    f"{short_yaml(expected)}, got '{first}' with {short_yaml(given)}"
                )
                raise stage.error((name,), message, f"Give both the same {param}.")


def _check_same(
    stage: Stage, name: str, pair: tuple[Stage, Stage], inputs: Sequence[str]
) -> None:
    """Check that a stage taken has the inputs and the epochs of another."""
    first_stage, second_stage = pair
    first, second = first_stage.name, second_stage.name
    for shared in inputs:
        of, required = first_stage.inputs.get(shared), second_stage.inputs.get(shared)
        if of != required and required is not None:
            what = f"the {shared} '{required[0]}' that '{second}' is of"
            got = f"'{first}' of '{of[0]}'" if of else f"'{first}' of none"
            message = f"expected a stage of {what}, got {got}"
            raise stage.error(
                (name,), message, f"Give '{first}' {shared}: {required[0]}."
            )
    # Two stages with the dimension epoch are combined epoch by epoch; of a stage that
    # chooses epochs by itself, all of them are asked for.
    are_combined = first_stage.at.adds_epoch and second_stage.at.adds_epoch
    if second_stage is stage:
        are_combined = are_combined and stage.at.is_within(first_stage.at)
    if first_stage.at != second_stage.at and not are_combined:
        message = (
            f"expected a stage at the epochs of '{second}', got '{first}' at others"
        )
        raise stage.error((name,), message, "Give both the same 'at'.")


MAX_DRAWN = 10_000
# Reduced without a part of the figure for each label: means, and points.
UNDRAWN = ("over", "each")


def check_drawn(stage: Stage, axes: Mapping[str, Axis]) -> None:
    """Refuse a figure of too many labels, and too many figures; StudyError."""
    if not issubclass(stage.kind.returns, Figure):
        return
    sizes = {name: len(axis.labels) for name, axis in axes.items()}
    number = math.prod(sizes[dim] for dim in stage.dims if dim in sizes)
    if number > MAX_DRAWN:
        message = f"expected at most {MAX_DRAWN:,} figures of a stage, got {number:,}"
        hint = f"Average over {max(stage.dims, key=lambda dim: sizes.get(dim, 0))}."
        raise stage.error((), message, hint)
    params = stage.params(next(stage.template.samples()))
    for name in stage.kind.reduces:
        value = None if name in UNDRAWN else getattr(params, name)
        for axis in [value] if isinstance(value, str) else value or ():
            if sizes.get(axis, 0) > MAX_DRAWN:
                message = (
                    f"expected an axis of at most {MAX_DRAWN:,} labels to draw, got "
                    f"'{axis}' of {sizes[axis]:,}"
                )
                raise stage.error((name,), message, "Average over it with 'over'.")
