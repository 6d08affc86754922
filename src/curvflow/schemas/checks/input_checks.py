"""Whether parameters and inputs of a stage agree: none is asked for in vain."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from curvflow.schemas.nodes import Label, Trajectory, Weights
from curvflow.schemas.study.draft import parameter_names
from curvflow.schemas.study.stage import Stage
from curvflow.schemas.study.yaml_source import shown


def check_inputs(stage: Stage, producers: Sequence[Stage]) -> None:
    """Check parameters against inputs, and inputs against their producers' parameters.

    Args:
        stage: its inputs resolved.
        producers: the stages taken.

    Raises:
        StudyError: an input is asked for and not given, or given in vain; a parameter
            has no say beside an input, or asks for more than an input has; a producer
            keeps less than is taken; or epochs are chosen of no weights.
    """
    named = {producer.name: producer for producer in producers}
    _check_epochs(stage, named)
    _check_wanted(stage)
    for name, taken in stage.inputs.items():
        for one in taken:
            _check_settled(stage, name, named[one])
            _check_kept(stage, name, named[one])
            _check_checkpoints(stage, name, named[one])
            _check_lacking(stage, name, named[one])
            _check_carried(stage, name, named[one])
            _check_shared(stage, name, named)


def _check_epochs(stage: Stage, named: Mapping[str, Stage]) -> None:
    inputs = stage.kind.inputs
    if stage.at.adds_epoch and stage.kind.checkpoints is not None:
        message = "expected 'final' or one epoch to begin training with, got several"
        raise stage.error(("at",), message, "Write one epoch, without brackets.")
    if stage.at.choice == "final":
        return
    weights = [
        named[one]
        for name, taken in stage.inputs.items()
        if issubclass(inputs[name].edge, Weights)
        for one in taken
    ]
    if any(one.kind.checkpoints is not None for one in weights):
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
            raise stage.error((name,), message, "The parameters ask for it.")
        if given and not is_wanted:
            message = f"expected no stage that returns {edge}, got '{given[0]}'"
            hint = "Remove it, or set the parameters that need it."
            raise stage.error((name,), message, hint)


def _check_settled(stage: Stage, name: str, producer: Stage) -> None:
    fields = stage.kind.params.model_fields
    settled = [one for one in stage.kind.inputs[name].settles if one in fields]
    for labels in stage.template.samples():
        params = stage.params(labels)
        for one in settled:
            value = getattr(params, one)
            if value == fields[one].default:
                continue
            message = f"expected no '{one}' beside '{name}', got {shown(value)}"
            hint = "Remove it."
            if one in parameter_names(producer.kind):
                hint = f"Remove it, or give it to '{producer.name}'."
            raise stage.error((one,), message, hint, labels=labels)


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
    if any(len(kept(producer.params(labels))) < 2 for labels in points):
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
        for labels, other in _together(stage, producer):
            own, theirs = (
                getattr(params, path).model_dump(exclude={"init"})
                for params in (stage.params(labels), producer.params(other))
            )
            for key in {**theirs, **own}:
                if own.get(key) == theirs.get(key):
                    continue
                expected, got = (f"{key} {shown(x.get(key))}" for x in (theirs, own))
                message = (
                    f"expected the {path} of '{producer.name}', with {expected}, "
                    f"got {got}"
                )
                hint = "Train it from there with the same model."
                raise stage.error((path,), message, hint, labels=labels)


def _together(
    stage: Stage, producer: Stage
) -> Iterator[tuple[Mapping[str, Label], Mapping[str, Label]]]:
    """Yield points of both at which axes that both name have the same labels."""
    for labels in stage.template.samples():
        for other in producer.template.samples():
            if all(other[axis] == labels[axis] for axis in labels.keys() & other):
                yield labels, other


def _check_lacking(stage: Stage, name: str, producer: Stage) -> None:
    lacking = stage.kind.inputs[name].lacking
    if lacking is None:
        return
    for labels, other in _together(stage, producer):
        taken = producer.name, producer.params(other)
        for path, message, hint in lacking(stage.params(labels), *taken):
            raise stage.error(path, message, hint, labels=labels)


def _check_shared(stage: Stage, name: str, named: Mapping[str, Stage]) -> None:
    """Check that two inputs are of the same network, data and parameters of it."""
    shares = stage.kind.inputs[name].shares
    if shares is None or shares.of not in stage.inputs:
        return
    (own,), (other,) = stage.inputs[name], stage.inputs[shares.of]
    mine, theirs = named[own], named[other]
    for one in shares.inputs:
        of, expected = mine.inputs.get(one), theirs.inputs.get(one)
        if of != expected and expected is not None:
            what = f"the {one} '{expected[0]}' that '{other}' is of"
            got = f"'{own}' of '{of[0]}'" if of else f"'{own}' of none"
            message = f"expected a stage of {what}, got {got}"
            raise stage.error((name,), message, f"Give '{own}' {one}: {expected[0]}.")
    # What adds the epochs as a dimension is taken together epoch by epoch.
    if mine.at != theirs.at and not (mine.at.adds_epoch and theirs.at.adds_epoch):
        message = f"expected a stage at the epochs of '{other}', got '{own}' at others"
        raise stage.error((name,), message, "Give both the same 'at'.")
    for labels, there in _together(mine, theirs):
        for param in shares.params:
            given, wanted = (
                getattr(of.params(point), param, None)
                for of, point in ((mine, labels), (theirs, there))
            )
            if given != wanted:
                message = (
                    f"expected a stage with the {param} of '{other}', {shown(wanted)}, "
                    f"got '{own}' with {shown(given)}"
                )
                raise stage.error((name,), message, f"Give both the same {param}.")
