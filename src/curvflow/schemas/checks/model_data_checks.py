"""Checks that models, losses and data fit each other.

No method of the specification tells it, as it is no code that computes a network.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from importlib import import_module
from math import prod
from types import ModuleType
from typing import Any, Literal

from curvflow.schemas.checks.samples import (
    describe_inputs,
    describe_outputs,
    known_samples,
)
from curvflow.schemas.kind import Kind, Misnomer, Samples
from curvflow.schemas.models import AnyModel, model_name
from curvflow.schemas.nodes import Data, Label
from curvflow.schemas.params import Params
from curvflow.schemas.study.stage import Stage
from curvflow.schemas.study.template import samples
from curvflow.schemas.study.yaml_source import shown

InputForm = Literal["row", "image", "unknown"]


def input_form(model: AnyModel) -> InputForm:
    """Return what a network takes of a sample.

    Args:
        model: its specification, in whose file `SEES` says it.

    Returns:
        A row of numbers, whatever their shape; an image of channels, height and width;
        or what only the module of the user's own tells.
    """
    found: InputForm = getattr(_file(model), "SEES", "row")
    return found


def tensor_sizes(model: AnyModel, inputs: int, outputs: int) -> Mapping[str, int]:
    """Return the sizes of the parameter tensors of a network.

    Args:
        model: its specification, in whose file the function of this name tells them.
        inputs: numbers of a sample.
        outputs: classes, or values of a target.

    Returns:
        Sizes by name; none if only building the network tells.
    """
    tell = getattr(_file(model), "tensor_sizes", None)
    sizes: Mapping[str, int] = tell(model, inputs, outputs) if tell else {}
    return sizes


def _file(model: AnyModel) -> ModuleType:
    return import_module(f"curvflow.schemas.models.{model_name(model)}")


Stages = Mapping[str, Stage]
Labels = Mapping[str, Label]

# Samples that a kind returns, by its parameters and the samples that it takes.
SamplesOf = Callable[[Kind, Params, Samples], Samples]
DATA = "data"


@dataclass(frozen=True)
class _Dataset:
    """A data set as a stage takes it: which, and what tells the form of its samples."""

    name: str
    tell: Callable[[], Samples]

    @property
    def samples(self) -> Samples:
        """The form, found out when it is asked for: a file may have to be read."""
        return self.tell()


@dataclass(frozen=True)
class _Network:
    """A network as a stage takes it: whose, of which model, and what it was fitted to.

    Attributes:
        name: of the stage that returns the weights.
        model: its specification.
        data: that the stage took.
    """

    name: str
    model: AnyModel
    data: _Dataset


def check_model_and_data(
    stage: Stage, stages: Stages, tell: SamplesOf = known_samples
) -> None:
    """Check that a stage's data fit its model, its loss, and the weights it takes.

    Args:
        stage: its inputs resolved, its parameters valid.
        stages: those before it, and it.
        tell: what is known of samples.

    Raises:
        StudyError: the loss or the model is not for such targets or inputs; the data
            are not such as the network takes; or more eigenvalues are wanted than it
            has parameters.
    """
    if stage.kind.home or DATA not in stage.inputs:  # users know what theirs do
        return
    declared = stage.kind.inputs[DATA]
    if declared.edge is not Data or declared.many:
        return
    sources = [stages[name] for name in stage.inputs.get(declared.follows or "", ())]
    involved = [one for root in (stage, *sources) for one in _chain(root, stages)]
    for labels in samples(r for one in involved for r in one.template.references):
        for path, message, hint in _problems(stage, sources, stages, labels, tell):
            raise stage.error(path, message, hint, labels=labels)


def _chain(stage: Stage, stages: Stages) -> Iterator[Stage]:
    """Yield a stage, and the data that it and they are made of."""
    yield stage
    for name in stage.inputs.get(DATA, ()):
        yield from _chain(stages[name], stages)


def _problems(
    stage: Stage, sources: list[Stage], stages: Stages, labels: Labels, tell: SamplesOf
) -> Iterator[Misnomer]:
    params, given = stage.params(labels), _dataset(stage, stages, labels, tell)
    poses = "model" in stage.kind.carries
    if poses:
        yield from _model_problems(params, given)
    for source in sources:
        trained = _network(source, stages, labels, tell)
        if trained is None:
            continue
        if trained.data.name != given.name:
            yield from _data_mismatches(given, trained, is_same_size=poses)
        yield from _too_many_eigenvalues(params, trained)


def _dataset(stage: Stage, stages: Stages, labels: Labels, tell: SamplesOf) -> _Dataset:
    data = stages[stage.inputs[DATA][0]]
    own = dict.fromkeys(r.axis.name for r in data.template.references)
    at = ", ".join(f"{axis}={shown(labels[axis])}" for axis in own)
    told = f"'{data.name}' at {at}" if at else f"'{data.name}'"
    return _Dataset(told, lambda: _samples(data, stages, labels, tell))


def _samples(data: Stage, stages: Stages, labels: Labels, tell: SamplesOf) -> Samples:
    if data.kind.home:
        return Samples()
    sources = data.inputs.get(DATA)
    taken = Samples()
    if sources:
        taken = _samples(stages[sources[0]], stages, labels, tell)
    return tell(data.kind, data.params(labels), taken)


def _network(
    source: Stage, stages: Stages, labels: Labels, tell: SamplesOf
) -> _Network | None:
    model = getattr(source.params(labels), "model", None)
    if "model" not in source.kind.carries or DATA not in source.inputs:
        return None
    assert isinstance(model, AnyModel)
    return _Network(f"'{source.name}'", model, _dataset(source, stages, labels, tell))


def _model_problems(params: Any, data: _Dataset) -> Iterator[Misnomer]:
    """Yield that a model or a loss is not for data such as these."""
    model, loss = params.model, getattr(params, "loss", "auto")
    if loss == "auto" and model.fits_values and input_form(model) != "image":
        return  # as any data are
    targets, shape = data.samples.targets, data.samples.shape
    if input_form(model) == "image" and shape is not None and len(shape) != 3:
        message = (
            f"expected images (channels, height, width) for {model_name(model)}, got "
            f"{describe_inputs(shape)} of {data.name}"
        )
        hint = "Take images that are not flattened, or a dense model."
        yield ("model",), message, hint
    if targets == "values" and not model.fits_values:
        message = (
            f"expected targets that are labels for {model_name(model)}, got the "
            f"values of {data.name}"
        )
        yield ("model",), message, "Take data with labels, or model linear."
    if targets == "labels" and loss not in ("auto", "cross_entropy"):
        message = f"expected cross_entropy for the labels of {data.name}, got {loss}"
        hint = "Take cross_entropy or auto, or data.modify with labels: one_hot."
        yield ("loss",), message, hint
    if targets == "values" and loss == "cross_entropy":
        message = f"expected mse or sse for the values of {data.name}, got {loss}"
        yield ("loss",), message, "Take mse, sse or auto, or data with labels."


def _data_mismatches(
    given: _Dataset, trained: _Network, *, is_same_size: bool
) -> Iterator[Misnomer]:
    """Yield that a network cannot be measured, or trained on, with other data."""
    own, theirs = given.samples, trained.data.samples
    hint = f"Give data like {trained.data.name}, or train a network on {given.name}."

    def other(expected: str, got: str) -> Misnomer:
        of = f"as {trained.name} was trained on"
        message = f"expected data with {expected}, {of}, got {given.name} with {got}"
        return (DATA,), message, hint

    if own.shape is not None and theirs.shape is not None:
        seen = "image" if is_same_size else input_form(trained.model)
        other_row = seen == "row" and prod(own.shape) != prod(theirs.shape)
        if other_row or (seen == "image" and own.shape != theirs.shape):
            yield other(describe_inputs(theirs.shape), describe_inputs(own.shape))
    if own.targets is None or theirs.targets is None:
        return
    if own.targets != theirs.targets and not is_same_size:
        yield other(f"{theirs.targets} as targets", own.targets)
    if own.outputs is None or theirs.outputs is None:
        return
    # A network tells of fewer classes than it has, as of some of its data.
    is_exact = is_same_size or theirs.targets == "values"
    if own.outputs > theirs.outputs or (is_exact and own.outputs < theirs.outputs):
        least = "" if is_exact else "at most "
        expected = describe_outputs(theirs.targets, theirs.outputs, least)
        yield other(expected, describe_outputs(own.targets, own.outputs))


def _too_many_eigenvalues(params: Any, trained: _Network) -> Iterator[Misnomer]:
    """Yield that more eigenvalues are wanted than a network has parameters."""
    wanted, layers = getattr(params, "k", None), getattr(params, "layers", None)
    if wanted is None:
        return
    known = trained.data.samples
    if known.shape is None or known.outputs is None:
        return
    sizes = tensor_sizes(trained.model, prod(known.shape), known.outputs)
    moved = [
        size
        for name, size in sizes.items()
        if layers is None or any(fnmatchcase(name, pattern) for pattern in layers)
    ]
    if sizes and wanted > sum(moved):
        where = " in these layers" if layers else ""
        message = (
            f"expected at most the {sum(moved)} parameters of {trained.name}{where}, "
            f"got {wanted}"
        )
        yield ("k",), message, "Lower it."
