"""Checks that models, losses and data are compatible.

They are no methods of the specifications, which are code that computes networks.
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
from curvflow.schemas.kind import Kind, ParamProblem, Samples
from curvflow.schemas.kinds.shared.several_inputs import argument_names
from curvflow.schemas.losses import AnyLoss, loss_name, misfit, num_outputs, takes
from curvflow.schemas.models import AnyModel, model_name
from curvflow.schemas.models._base import Model, SequenceModel
from curvflow.schemas.nodes import Data, Label
from curvflow.schemas.params import Params
from curvflow.schemas.study.stage import Stage
from curvflow.schemas.study.template import samples
from curvflow.schemas.study.yaml_source import short_yaml

InputForm = Literal["row", "image", "sequence", "unknown"]


def input_form(model: AnyModel) -> InputForm:
    """Return the form of sample that a model takes."""
    form: InputForm = getattr(_file(model), "SEES", "row")
    return form


def tensor_sizes(model: AnyModel, inputs: int, outputs: int) -> Mapping[str, int]:
    """Return parameter sizes by name; empty if only building the network shows them."""
    sizes_of = getattr(_file(model), "tensor_sizes", None)
    sizes: Mapping[str, int] = sizes_of(model, inputs, outputs) if sizes_of else {}
    return sizes


def fixed_outputs(model: AnyModel, inputs: int) -> int | None:
    """Return the outputs of a model that are not as many as its loss wants, or None."""
    outputs_of = getattr(_file(model), "fixed_outputs", None)
    return int(outputs_of(model, inputs)) if outputs_of else None


def _file(model: AnyModel) -> ModuleType:
    return import_module(type(model).__module__)


Stages = Mapping[str, Stage]
Labels = Mapping[str, Label]

# Samples that a kind returns, by its parameters and the samples that it takes.
SamplesOf = Callable[[Kind, Params, Samples], Samples]
DATA = "data"


@dataclass(frozen=True)
class _Dataset:
    """A data set that a stage takes.

    Attributes:
        name: as messages have it.
        read: finds the form of its samples.
        several: names of the inputs, where parameters name more than one.
    """

    name: str
    read: Callable[[], Samples]
    several: tuple[str, ...] = ()

    @property
    def samples(self) -> Samples:
        """Form of the samples, computed on demand: it may take reading a file."""
        return self.read()


@dataclass(frozen=True)
class _Network:
    """A network that a stage takes.

    Attributes:
        name: of the stage that returns the weights.
        model: its specification.
        loss: that it was trained with.
        data: that the stage took.
    """

    name: str
    model: AnyModel
    loss: AnyLoss
    data: _Dataset


def check_model_and_data(
    stage: Stage, stages: Stages, samples_of: SamplesOf = known_samples
) -> None:
    """Check that a stage's data fit its model, its loss and the weights it takes."""
    if stage.kind.home or DATA not in stage.inputs:  # users know what theirs do
        return
    declared = stage.kind.inputs[DATA]
    if declared.edge is not Data or declared.many:
        return
    followed = [stage.inputs.get(name, ()) for name in declared.sources]
    sources = [stages[name] for names in followed for name in names]
    chains = [link for root in (stage, *sources) for link in _chain(root, stages)]
    for labels in samples(r for link in chains for r in link.template.references):
        for path, message, hint in _problems(
            stage, sources, stages, labels, samples_of
        ):
            raise stage.error(path, message, hint, labels=labels)


def _chain(stage: Stage, stages: Stages) -> Iterator[Stage]:
    """Yield a stage and the chain of data stages behind it."""
    yield stage
    for name in stage.inputs.get(DATA, ()):
        yield from _chain(stages[name], stages)


def _problems(
    stage: Stage,
    sources: list[Stage],
    stages: Stages,
    labels: Labels,
    samples_of: SamplesOf,
) -> Iterator[ParamProblem]:
    params, given = stage.params(labels), _dataset(stage, stages, labels, samples_of)
    poses = "model" in stage.kind.carries
    if poses:
        yield from _model_problems(params, given)
    yield from _unlabelled(params, given)
    for source in sources:
        trained = _network(source, stages, labels, samples_of)
        if trained is None:
            continue
        if trained.data.name != given.name:
            yield from _data_mismatches(given, trained, is_same_size=poses)
        yield from _too_many_parameters(params, trained)


def _dataset(
    stage: Stage, stages: Stages, labels: Labels, samples_of: SamplesOf
) -> _Dataset:
    data = stages[stage.inputs[DATA][0]]
    axes = dict.fromkeys(r.axis.name for r in data.template.references)
    at = ", ".join(f"{axis}={short_yaml(labels[axis])}" for axis in axes)
    name = f"'{data.name}' at {at}" if at else f"'{data.name}'"
    return _Dataset(
        name,
        lambda: _samples(data, stages, labels, samples_of),
        _several_inputs(data, stages, labels),
    )


def _several_inputs(data: Stage, stages: Stages, labels: Labels) -> tuple[str, ...]:
    """Return the names of several inputs, those of the data modified as well."""
    if sources := data.inputs.get(DATA):
        return _several_inputs(stages[sources[0]], stages, labels)
    return argument_names(getattr(data.params(labels), "inputs", None))


def samples_taken(
    stage: Stage, stages: Stages, labels: Labels, samples_of: SamplesOf = known_samples
) -> Samples:
    """Return the form of the samples of the data that a stage takes, as far as known.

    Args:
        stage: with the input `data`.
        stages: of the study.
        labels: of the stage's dimensions, those of its data among them.
        samples_of: of one data stage, by the form of the samples that it takes.
    """
    return _samples(stages[stage.inputs[DATA][0]], stages, labels, samples_of)


def _samples(
    data: Stage, stages: Stages, labels: Labels, samples_of: SamplesOf
) -> Samples:
    if data.kind.home:
        return Samples()
    sources = data.inputs.get(DATA)
    taken = Samples()
    if sources:
        taken = _samples(stages[sources[0]], stages, labels, samples_of)
    return samples_of(data.kind, data.params(labels), taken)


def _network(
    source: Stage, stages: Stages, labels: Labels, samples_of: SamplesOf
) -> _Network | None:
    params = source.params(labels)
    model = getattr(params, "model", None)
    if "model" not in source.kind.carries or DATA not in source.inputs:
        return None
    assert isinstance(model, AnyModel)
    loss: AnyLoss = getattr(params, "loss", "auto")
    return _Network(
        f"'{source.name}'", model, loss, _dataset(source, stages, labels, samples_of)
    )


def _model_problems(params: Any, data: _Dataset) -> Iterator[ParamProblem]:
    """Yield mismatches between the data and a stage's model or loss."""
    model = params.model
    loss: AnyLoss = getattr(params, "loss", "auto")
    if getattr(params, "label_noise", None) and data.samples.targets == "values":
        message = f"expected labels for label_noise, got the values of {data.name}"
        yield ("label_noise",), message, "Remove it, or take data with labels."
    if data.several and input_form(model) != "unknown":
        message = (
            f"expected one input a sample for {model_name(model)}, got "
            f"{', '.join(data.several)} of {data.name}"
        )
        hint = "Take the module of a factory, whose forward has these names."
        yield ("model",), message, hint
        return
    yield from _augment_problems(getattr(params, "augment", None), data)
    targets = data.samples.targets
    yield from _shape_problems(model, data)
    if targets == "values" and not model.fits_values:
        message = (
            f"expected targets that are labels for {model_name(model)}, got the "
            f"values of {data.name}"
        )
        yield ("model",), message, "Take data with labels, or model linear."
    if targets == "labels" and takes(loss) == "values":
        message = (
            f"expected cross_entropy for the labels of {data.name}, got "
            f"{loss_name(loss)}"
        )
        hint = "Take cross_entropy or auto, or data.modify with labels: one_hot."
        yield ("loss",), message, hint
    if targets == "values" and takes(loss) == "labels":
        message = (
            f"expected mse or sse for the values of {data.name}, got {loss_name(loss)}"
        )
        yield ("loss",), message, "Take mse, sse or auto, or data with labels."
    elif takes(loss) in (None, targets):
        yield from _width_problems(model, loss, data)


def _width_problems(
    model: AnyModel, loss: AnyLoss, data: _Dataset
) -> Iterator[ParamProblem]:
    """Yield mismatches between the outputs that a loss wants, model and data."""
    shape, targets, size = (
        data.samples.shape,
        data.samples.targets,
        data.samples.outputs,
    )
    if targets is None or size is None:
        return
    if wrong := misfit(loss, targets, size):
        where, message, hint = wrong
        path = ("loss", *filter(None, where.split(".")))
        yield path, f"{message}, of {data.name}", hint
        return
    fixed = None if shape is None else fixed_outputs(model, prod(shape))
    wanted = num_outputs(loss, targets, size)
    if fixed is not None and wanted != fixed:
        of = describe_outputs(targets, size)
        message = (
            f"expected a loss of the {fixed} outputs of {model_name(model)}, got "
            f"{loss_name(loss)}, which takes {wanted} for {of} of {data.name}"
        )
        yield ("loss",), message, "Take mse or bce with targets: inputs, or model mlp."


def _augment_problems(augment: Any, data: _Dataset) -> Iterator[ParamProblem]:
    """Yield what cannot be done to the inputs of the data in training."""
    if augment is not None and data.several:
        message = f"augment cannot be combined with the several inputs of {data.name}"
        yield ("augment",), message, "Remove it, or draw in the module."
    if augment is None or not augment.takes_images:
        return
    shape = data.samples.shape
    if shape is not None and len(shape) != 3:
        message = (
            "expected images (channels, height, width) for shift, flip and erase, got "
            f"{describe_inputs(shape)} of {data.name}"
        )
        yield ("augment",), message, "Remove these, or do not flatten the images."


def _shape_problems(model: AnyModel, data: _Dataset) -> Iterator[ParamProblem]:
    """Yield mismatches between a model and the inputs and tokens of the data."""
    shape, tokens = data.samples.shape, data.samples.tokens
    if input_form(model) == "image" and shape is not None and len(shape) != 3:
        message = (
            f"expected images (channels, height, width) for {model_name(model)}, got "
            f"{describe_inputs(shape)} of {data.name}"
        )
        hint = "Take images that are not flattened, or a dense model."
        yield ("model",), message, hint
    if tokens is not None and not model.takes_tokens:
        message = (
            f"expected a model of sequences for the labels of {tokens} tokens a sample "
            f"of {data.name}, got {model_name(model)}"
        )
        hint = "Take a transformer, lstm, gru or factory, or one label for each sample."
        yield ("model",), message, hint
    if shape is None or data.samples.targets is None:
        return
    if isinstance(model, Model):
        # A loss may want other outputs than the data have.
        for message, hint in model.misfits(shape, tokens, None):
            yield ("model",), f"{message}, for {data.name}", hint
    if isinstance(model, SequenceModel):
        yield from _too_small_vocabularies(model, data)


def _too_small_vocabularies(
    model: SequenceModel, data: _Dataset
) -> Iterator[ParamProblem]:
    """Yield a message if inputs may name tokens that the model has no vector for."""
    known, given = data.samples.vocabulary, model.vocabulary
    if known is not None and given is not None and given < known:
        message = f"expected at least the {known} tokens of {data.name}, got {given}"
        yield ("model", "vocabulary"), message, "Raise it."


def _unlabelled(params: Any, data: _Dataset) -> Iterator[ParamProblem]:
    """Yield that labels or tokens are requested that the data do not have."""
    yield from _relabel_problems(params, data)
    kept = getattr(params, "keep_losses", None)
    if kept not in ("labels", "tokens"):
        return
    if data.samples.targets == "values":
        message = f"expected samples, as the targets of {data.name} are values, got "
    elif kept == "labels" and data.samples.tokens is not None:
        message = f"expected tokens or samples of the tokens of {data.name}, got "
    else:
        return
    yield ("keep_losses",), message + kept, "Take samples."


def _relabel_problems(params: Any, data: _Dataset) -> Iterator[ParamProblem]:
    if getattr(params, "relabel", "none") == "none":
        return
    has_values, tokens = data.samples.targets == "values", data.samples.tokens
    if has_values or tokens is not None:
        got = "values" if has_values else f"labels of {tokens} tokens a sample"
        message = f"expected a label for each sample, got the {got} of {data.name}"
        yield ("relabel",), message, "Remove it, or take data with labels."


def _data_mismatches(
    given: _Dataset, trained: _Network, *, is_same_size: bool
) -> Iterator[ParamProblem]:
    """Yield mismatches between the data and those that a network was trained on."""
    samples, trained_samples = given.samples, trained.data.samples
    hint = f"Give data like {trained.data.name}, or train a network on {given.name}."

    def other(expected: str, got: str) -> ParamProblem:
        of = f"as {trained.name} was trained on"
        message = f"expected data with {expected}, {of}, got {given.name} with {got}"
        return (DATA,), message, hint

    if samples.shape is not None and trained_samples.shape is not None:
        seen = "image" if is_same_size else input_form(trained.model)
        other_row = seen == "row" and prod(samples.shape) != prod(trained_samples.shape)
        is_whole = seen in ("image", "sequence")
        if other_row or (is_whole and samples.shape != trained_samples.shape):
            yield other(
                describe_inputs(trained_samples.shape), describe_inputs(samples.shape)
            )
    if samples.targets is None or trained_samples.targets is None:
        return
    if samples.targets != trained_samples.targets and not is_same_size:
        yield other(f"{trained_samples.targets} as targets", samples.targets)
    if samples.outputs is None or trained_samples.outputs is None:
        return
    # A network can be measured on data with fewer classes than it has.
    is_exact = is_same_size or trained_samples.targets == "values"
    if samples.outputs > trained_samples.outputs or (
        is_exact and samples.outputs < trained_samples.outputs
    ):
        least = "" if is_exact else "at most "
        expected = describe_outputs(
            trained_samples.targets, trained_samples.outputs, least
        )
        yield other(expected, describe_outputs(samples.targets, samples.outputs))


def _too_many_parameters(params: Any, trained: _Network) -> Iterator[ParamProblem]:
    """Yield a message if `k` exceeds the number of parameters, or that `max_size`."""
    k, layers = getattr(params, "k", None), getattr(params, "layers", None)
    most = getattr(params, "max_size", None)
    if k is None and most is None:
        return
    samples = trained.data.samples
    if samples.shape is None or samples.outputs is None:
        return
    outputs = num_outputs(trained.loss, samples.targets or "values", samples.outputs)
    sizes = tensor_sizes(trained.model, prod(samples.shape), outputs)
    free = [
        size
        for name, size in sizes.items()
        if layers is None or any(fnmatchcase(name, pattern) for pattern in layers)
    ]
    where = f"the {sum(free)} parameters of {trained.name}"
    where += " in these layers" if layers else ""
    if sizes and k is not None and k > sum(free):
        yield ("k",), f"expected at most {where}, got {k}", "Lower it."
    if sizes and most is not None and most < sum(free):
        message = f"expected at least {where}, got {most}"
        yield ("max_size",), message, "Choose layers, or raise it."
