"""Problems: a network with its loss, as text and as functions, and its samples."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from importlib import import_module
from typing import Any, Literal, NamedTuple, NotRequired, TypedDict, TypeVar, cast

import numpy as np
import torch
from torch import Tensor

from curvflow.errors import InputError
from curvflow.schemas.disk_arrays import DiskArray, is_on_disk
from curvflow.schemas.keys import form, without
from curvflow.schemas.kinds.shared.datasets import has_labels, has_tokens, is_ignored
from curvflow.schemas.kinds.shared.several_inputs import (
    INPUT_PARTS,
    input_parts,
    only_one_input,
)
from curvflow.schemas.losses import (
    IGNORED,
    AnyLoss,
    CrossEntropy,
    LossName,
    OwnLoss,
    loss_name,
    misfit,
    num_outputs,
    takes,
)
from curvflow.schemas.models import AnyModel, model_name, parse_model
from curvflow.schemas.models._base import SequenceModel
from curvflow.schemas.models.factory import FactoryModel
from curvflow.schemas.nodes import Array, Member, NodeData
from curvflow.tasks.networks.checks import check_network, output_shape
from curvflow.tasks.networks.losses import (
    NetworkLoss,
    Rows,
    check_own_loss,
    network_loss,
    parse_loss,
)
from curvflow.tasks.networks.network import Layout, Network
from curvflow.tasks.networks.parts.sequence import SequenceData
from curvflow.tasks.numerics.derivatives.hessians import BatchedHessian
from curvflow.tasks.numerics.derivatives.passes import Draws
from curvflow.tasks.numerics.disk_tensors import DiskTensor, as_tensor, shared_rows

T = TypeVar("T")

# From a problem as text, samples of a pass and of all, and columns to half the
# peak bytes of products of two models.
CountBytes = Callable[[str, int, int, int], int]

# Losses that imply the targets of a problem.
IMPLIED = ("cross_entropy", "mse", "sse")

DATA_ARRAYS = ("inputs", "targets", "test_inputs", "test_targets")

# Rows of integers that a module is tried on.
TRIAL_ROWS = 4

# Rows that are read from disk at once, as they are and as loaded, where a pass over all
# samples is made.
MOST_READ = 4096

# Rows of targets at most among which those are sought that a loss is tried on.
MOST_SEEN = 4096

# Bytes that the activations of one model may take in one pass over the data. Measured
# by `benchmarks.passes`: by passes of a quarter of it most networks take twice as long.
PASS_BYTES = 1 << 27

# The same for all models of one pass on a CPU. Measured at 40 networks of 64-16-10:
# eight at a time take two thirds of the time of all at once.
CPU_PRODUCT_BYTES = 1 << 28

# Numbers per activation that forward-over-reverse keeps at its peak, measured.
PASS_COPIES = 3

# Vectors of all parameters beside which the activations of a pass may take as much
# again, where there are many parameters: what is done for vectors is done per pass.
PASS_VECTORS, MANY_PARAMETERS = 8, 1 << 20


@dataclass(frozen=True)
class Problem:
    """A network and the loss it was trained with.

    Attributes:
        network: the function.
        loss: its name, or canonical JSON of its specification.
        text: canonical JSON that describes both.
        input_shape: shape of one sample.
        target_shape: shape of the targets of one sample, as loaded.
        has_labels: targets of the data are labels, and no values.
        tokens: labels of one sample, T, of which its loss is the mean; None of one
            label or of values.
        takes_integers: inputs are whole numbers, such as tokens, and stay so.
    """

    network: Network
    loss: str
    text: str
    input_shape: tuple[int, ...]
    target_shape: tuple[int, ...]
    has_labels: bool
    tokens: int | None = None
    takes_integers: bool = False

    def of_parameters(self, names: Collection[str]) -> Problem:
        """Return the same problem, in which nothing is derived by other parameters.

        Args:
            names: of the parameters; the text stays that of all.
        """
        return replace(self, network=self.network.of_parameters(names))

    @property
    def criterion(self) -> NetworkLoss:
        """The loss as a function, and how it takes targets."""
        return network_loss(self.loss, has_labels=self.has_labels)

    def target_type(self, dtype: torch.dtype) -> torch.dtype:
        """Return the type of loaded targets: whole labels, or else `dtype`."""
        return torch.int64 if self.criterion.has_labels else dtype

    def losses(
        self,
        weights_MW: Tensor,
        inputs: Tensor,
        targets: Tensor,
        draw: Callable[[tuple[int, ...]], Tensor] | None = None,
    ) -> Tensor:
        """Return the loss of each sample, (M, N), when not in training.

        Args:
            weights_MW: parameters and statistics, (M, D + S).
            inputs: shape (M or 1, N, ...).
            targets: as loaded, (M or 1, N, *target_shape).
            draw: uniform numbers (M, *shape); with them it is that in training.
        """
        outputs = self.network.outputs(weights_MW, inputs, draw)
        return self.criterion.of_samples(outputs, targets)

    def reduced(self, losses_MN: Tensor) -> Tensor:
        """Return the loss that is minimised, (M,): the sum for sse, else the mean."""
        return losses_MN.sum(1) if self.criterion.is_sum else losses_MN.mean(1)

    @cached_property
    def num_outputs(self) -> int:
        """Number of outputs of a sample, or of each token, C."""
        outputs: int = json.loads(self.text)["num_outputs"]
        return outputs

    @cached_property
    def input_parts(self) -> list[Any]:
        """Descriptions of several inputs of a sample, as in the text; none of one."""
        parts: list[Any] = json.loads(self.text).get(INPUT_PARTS, [])
        return parts

    @cached_property
    def programs(self) -> dict[tuple[str, bool], Callable[..., tuple[Tensor, ...]]]:
        """Programs compiled of the network, which last as long as it does."""
        return {}

    @property
    def several(self) -> tuple[str, ...]:
        """Names of several inputs of a sample; none of one."""
        return tuple(part[0] for part in self.input_parts)

    def rows_per_pass(
        self, columns: int, *, each: float | None = None, most: int | None = None
    ) -> int:
        """Return how many samples fit into one pass of one model.

        It does not depend on how many models there are, so that sums are taken in the
        same order whatever the tile.

        Args:
            columns: vectors multiplied at once.
            each: bytes per stored activation; None for those of products.
            most: bytes of a pass, unless the network has a bound; None for those of
                products.
        """
        most = self.network.pass_bytes or most or PASS_BYTES
        size = self.network.num_parameters
        held = 8 * PASS_COPIES * columns if each is None else each
        sample = held * self.network.width
        if most < 2 * sample and size >= MANY_PARAMETERS:
            most = 8 * PASS_VECTORS * size * columns
        return max(1, int(most // sample))

    def models_per_pass(
        self, num_samples: int, columns: int, together: int | None = None
    ) -> int:
        """Return how many models fit into one pass of Hessian products on a CPU.

        Args:
            num_samples: N.
            columns: vectors multiplied at once.
            together: samples that meet in a pass of networks in training; None in
                evaluation.
        """
        rows = min(num_samples, together or self.rows_per_pass(columns))
        return CPU_PRODUCT_BYTES // self._product_activations(rows, columns)

    def product_bytes(
        self,
        data: NodeData,
        columns: int,
        count: CountBytes | None = None,
        rows: int | None = None,
    ) -> int:
        """Return the estimated peak bytes of one model's products.

        Counted on meta tensors for a pass of two models, the fewest that occur: half of
        it for each. Where a tile takes several passes of models this overestimates,
        since one pass at a time computes; what modules that go one by one keep of
        passes that are over is within it, if it is counted.

        Args:
            data: the data set; it is in memory as stored and as loaded.
            columns: vectors multiplied at once.
            count: counts the bytes of another operator; by default those of the
                Hessian, forward over reverse.
            rows: samples of a pass; None takes as many as fit.
        """
        num_samples = len(data["inputs"])
        rows = min(num_samples, rows or self.rows_per_pass(columns))
        # Once as loaded and once as stacked.
        weights = 2 * 8 * (self.network.num_parameters + self.network.statistics.size)
        try:
            # In the second pass the sum of the first is held; others are like it.
            samples = min(num_samples, 2 * rows)
            products = (count or _pass_bytes)(self.text, rows, samples, columns)
        # A module of the user's own may want numbers, and fail in any way without.
        except Exception:
            vectors = 6 * 8 * self.network.num_parameters * (columns + 1)
            products = vectors + self._product_activations(rows, columns)
        return products + weights + data_set_bytes(data, 8)

    def _product_activations(self, rows: int, columns: int) -> int:
        return 8 * PASS_COPIES * rows * self.network.width * columns


def pose(model: AnyModel, loss: AnyLoss, data: NodeData) -> Problem:
    """Pose the problem of fitting a model to a data set.

    Args:
        model: specification of the model.
        loss: the loss; `auto` takes cross_entropy for labels, mse for values. Labels
            of -100 do not count where it is the cross entropy.
        data: labels have shape (N,), those of tokens (N, T), values (N, C).

    Returns:
        The problem.

    Raises:
        InputError: the loss or the model does not fit the targets.
    """
    targets = data["targets"]
    tokens = targets.shape[1] if has_tokens(targets) else None
    if tokens is not None and not model.takes_tokens:
        raise InputError(
            f"model: expected a model of sequences for the labels of {tokens} tokens a "
            f"sample, got {model_name(model)}. Take a transformer, lstm, gru or "
            "factory, or one label for each sample."
        )
    if not (has_labels(targets) or model.fits_values):
        raise InputError(
            f"model: expected targets that are labels for {model_name(model)}, got "
            "values. Take data with labels, or model linear."
        )
    if not isinstance(model, FactoryModel):
        only_one_input(data, str(model_name(model)))
    spec = _fitting_loss(loss, data)
    text = spec if isinstance(spec, str) else _encode(spec.model_dump(mode="json"))
    outputs = _num_outputs(spec, data)
    plain = _encode(without(form(model), ["init"]))
    shapes = data["inputs"].shape[1:], outputs, tokens, _posed_targets(text, data)
    if isinstance(spec, OwnLoss):
        kind = np.int64 if has_labels(targets) else np.float64
        rows = Rows.of(_varied_rows(targets).astype(kind))
        check_own_loss(text, output_shape(outputs, tokens), rows)
    takes_integers = model.takes_tokens and data["inputs"].dtype.kind == "i"
    if several := _several(data):
        return _of_several(plain, text, shapes, first_rows(data), several)
    is_as_classes = not has_labels(targets) or outputs == int(data["num_classes"])
    if takes_integers and tokens and not is_as_classes:
        _check_vocabulary(model, outputs)
    if not (takes_integers and model.is_tried):
        return _build(plain, text, *shapes, takes_integers=takes_integers)
    return _of_integers(plain, text, shapes, first_rows(data))


def _check_vocabulary(model: AnyModel, num_outputs: int) -> None:
    """Refuse to take the outputs of a loss for the number of tokens.

    Raises:
        InputError: the model's vocabulary is to be that of the outputs.
    """
    if getattr(model, "vocabulary", 1) is None:
        raise InputError(
            f"model: expected a vocabulary with {num_outputs} outputs, which are not "
            "those of the classes, got none. Set vocabulary to the number of different "
            "tokens."
        )


def _varied_rows(targets: Array) -> Array:
    """Return a few rows that differ, so that a loss shows whether it mixes samples."""
    seen = targets[:: max(1, len(targets) // MOST_SEEN)]
    flat = seen.reshape(len(seen), -1)
    _, first = np.unique(flat, axis=0, return_index=True)
    spread = first[np.linspace(0, len(first) - 1, TRIAL_ROWS).astype(int)]
    ignored = (flat == IGNORED).sum(1)
    chosen = {*spread.tolist(), int(ignored.argmin()), int(ignored.argmax())}
    rows: Array = seen[sorted(chosen)]
    return rows


def _fitting_loss(loss: AnyLoss, data: NodeData) -> AnyLoss:
    """Return the loss itself, or that which leaves labels out that do not count."""
    kind = _kind_of(data)
    other: LossName = "cross_entropy" if kind == "labels" else "mse"
    if loss == "auto":
        loss = other
    if takes(loss) not in (None, kind):
        raise InputError(
            f"loss: expected a loss for {kind}, got {loss_name(loss)}. Use {other} or "
            "auto."
        )
    sets = data["targets"], data["test_targets"]
    if loss == "cross_entropy" and any(is_ignored(labels).any() for labels in sets):
        return CrossEntropy()
    return loss


def _num_outputs(loss: AnyLoss, data: NodeData) -> int:
    """Return the number of outputs of a sample, or of each token, C."""
    kind = _kind_of(data)
    size = int(data["num_classes"] if kind == "labels" else data["targets"].shape[1])
    if wrong := misfit(loss, kind, size):
        where, message, hint = wrong
        raise InputError(f"loss{where}: {message}. {hint}")
    return num_outputs(loss, kind, size)


def _kind_of(data: NodeData) -> Literal["labels", "values"]:
    return "labels" if has_labels(data["targets"]) else "values"


class Targets(NamedTuple):
    """Targets of a problem, where its loss does not imply them.

    Attributes:
        are_labels: those of the data are labels.
        shape: of a sample, as loaded.
    """

    are_labels: bool
    shape: tuple[int, ...]


def _posed_targets(loss: str, data: NodeData) -> Targets | None:
    if loss in IMPLIED:
        return None
    are_labels = has_labels(data["targets"])
    criterion = network_loss(loss, has_labels=are_labels)
    loaded = criterion.loaded(data["targets"])
    if criterion.weighs_terms and not loaded[..., 1].any():
        raise InputError(
            "targets: expected labels that count, got none that does. Take data with "
            "some."
        )
    return Targets(are_labels, loaded.shape[1:])


# Of inputs, number of outputs, number of tokens, and targets.
Shapes = tuple[tuple[int, ...], int, int | None, Targets | None]


@lru_cache(maxsize=64)
def _of_integers(model: str, loss: str, shapes: Shapes, rows: Rows) -> Problem:
    """Return the problem of a module that takes integers, or else wants numbers.

    Raises:
        InputError: it fails on rows of its data (int64), as they are and as numbers.
    """
    try:
        problem = _tried(model, loss, shapes, rows, takes_integers=True)
        _check_rows(problem, rows.tensor().unsqueeze(0))
    except InputError as error:
        try:
            return _build(model, loss, *shapes)
        except InputError:
            raise error from None
    return problem


@lru_cache(maxsize=64)
def _of_several(
    model: str, loss: str, shapes: Shapes, rows: Rows, several: str
) -> Problem:
    """Return the problem of a module of several inputs.

    Raises:
        InputError: it fails on rows of its data.
    """
    x = rows.tensor()
    is_whole = not x.is_floating_point()
    problem = _tried(
        model, loss, shapes, rows, takes_integers=is_whole, several=several
    )
    _check_rows(problem, x.unsqueeze(0) if is_whole else x.float().unsqueeze(0))
    return problem


def _tried(model: str, loss: str, shapes: Shapes, rows: Rows, **sizes: Any) -> Problem:
    """Build a problem by made-up inputs, or by rows where a module fails on those.

    Lengths of zero, or a sentence without an end, are no inputs for some.

    Returns:
        The problem; `read` finds it by its text.

    Raises:
        InputError: it fails on both.
    """
    try:
        return _build(model, loss, *shapes, **sizes)
    except InputError:
        problem = _build(model, loss, *shapes, rows=rows, **sizes)
    _by_rows[problem.text] = problem
    return problem


# Problems, by their text, of modules that take no inputs that are made up.
_by_rows: dict[str, Problem] = {}


def _several(data: NodeData) -> str:
    """Return the description of several inputs, "" of one."""
    return str(data[INPUT_PARTS]) if INPUT_PARTS in data else ""


def _check_rows(problem: Problem, x: Tensor) -> None:
    network, plain = problem.network, json.loads(problem.text)
    assert network.draw_initial is not None
    first_D = network.draw_initial(torch.Generator().manual_seed(0))
    check_network(
        network,
        torch.cat([first_D, network.first_statistics()]),
        x,
        name=plain["model"]["factory"],
        output_shape=output_shape(plain["num_outputs"], problem.tokens),
    )


def read(text: str, rows: Callable[[], Rows] | None = None) -> Problem:
    """Build the problem that `Problem.text` describes.

    Args:
        text: canonical JSON.
        rows: returns rows of inputs, to try a module on that takes none made up.

    Returns:
        The problem.

    Raises:
        InputError: the model now has other parameters than when it was trained.
    """
    if text in _by_rows:
        return _by_rows[text]
    try:
        return _read(text)
    except InputError:
        shape = json.loads(text)["input_shape"]
        problem = _read(text, rows() if rows else Rows.of(np.ones((1, *shape), int)))
    _by_rows[text] = problem
    return problem


def first_rows(data: NodeData) -> Rows:
    """Return the first rows of inputs, that modules are tried on."""
    return Rows.of(data["inputs"][:TRIAL_ROWS])


@lru_cache(maxsize=64)
def _read(text: str, rows: Rows | None = None) -> Problem:
    plain = json.loads(text)
    problem = _build(
        _encode(plain["model"]),
        plain["loss"] if isinstance(plain["loss"], str) else _encode(plain["loss"]),
        tuple(plain["input_shape"]),
        plain["num_outputs"],
        plain.get("tokens"),
        _listed_targets(plain),
        takes_integers=plain.get("takes_integers", False),
        several=_encode(plain[INPUT_PARTS]) if INPUT_PARTS in plain else "",
        rows=rows,
    )
    if "statistics" not in plain and not problem.network.moves_statistics:
        problem = _with_constants(problem)
    if problem.text != text:
        now = dict(json.loads(problem.text)["parameters"])
        raise InputError(
            f"network: expected the parameters it was trained with, "
            f"{dict(plain['parameters'])}, got {now}. Train again, or bring the "
            "factory back."
        )
    return problem


def _listed_targets(plain: Mapping[str, Any]) -> Targets | None:
    if "targets" not in plain:
        return None
    are_labels, shape = plain["targets"]
    return Targets(are_labels, tuple(shape))


def _with_constants(problem: Problem) -> Problem:
    """Return a problem of weights that were stored without the module's buffers."""
    plain = json.loads(problem.text)
    plain.pop("statistics", None)
    network = replace(problem.network, statistics=Layout())
    return replace(problem, network=network, text=_encode(plain))


def _encode(plain: object) -> str:
    return json.dumps(plain, sort_keys=True, separators=(",", ":"))


class OperatorInputs(TypedDict):
    """Arguments common to all operators over weights."""

    weights_MD: Tensor
    inputs: Tensor
    targets: Tensor
    fixed_MS: Tensor
    batch_size: int
    models_per_pass: int
    draws: NotRequired[Draws]


def meta_inputs(
    problem: Problem, rows: int, samples: int, dtype: torch.dtype
) -> OperatorInputs:
    """Return meta tensors of two models' shapes, to count memory.

    Args:
        problem: the network and its loss.
        rows: samples of one pass.
        samples: N.
        dtype: precision of weights, inputs and target values.
    """
    input_type = torch.int64 if problem.takes_integers else dtype
    sizes = (problem.network.num_parameters, problem.network.statistics.size)
    with torch.device("meta"):
        weights_MD, statistics_MS = (
            torch.empty(2, size, dtype=dtype) for size in sizes
        )
        return OperatorInputs(
            weights_MD=weights_MD,
            inputs=torch.empty(1, samples, *problem.input_shape, dtype=input_type),
            targets=torch.empty(
                1, samples, *problem.target_shape, dtype=problem.target_type(dtype)
            ),
            fixed_MS=statistics_MS,
            batch_size=rows,
            models_per_pass=2,
        )


@lru_cache(maxsize=256)
def _pass_bytes(text: str, rows: int, samples: int, columns: int) -> int:
    """Return half the peak bytes of passes of two models of a problem."""
    problem = read(text)
    inputs = meta_inputs(problem, rows, samples, torch.float64)
    return BatchedHessian(problem.losses, **inputs).product_bytes(columns) // 2


def built_network(
    spec: AnyModel, input_shape: Sequence[int], num_outputs: int, **sizes: Any
) -> Network:
    """Build the network of a model.

    Args:
        spec: the model.
        input_shape: of one sample.
        num_outputs: C.
        sizes: of a model that takes tokens, `tokens`, the labels of a sample, and
            `takes_integers`; of a module of several inputs, their `parts`; of one that
            takes none made up, `rows` of inputs.

    Returns:
        The network.

    Raises:
        InputError: the samples do not fit.
    """
    builder = import_module(f"curvflow.tasks.models.{spec.module}")
    if isinstance(spec, SequenceModel):
        data = SequenceData(input_shape, num_outputs, **sizes)
        network: Network = builder.build(spec, data)
    else:
        network = builder.build(spec, input_shape, num_outputs, **sizes)
    return network


def _sizes(tokens: int | None, *, takes_integers: bool) -> dict[str, Any]:
    """Return what models of sequences alone have: labels of tokens, and integers."""
    sizes: dict[str, Any] = {} if tokens is None else {"tokens": tokens}
    return sizes | ({"takes_integers": True} if takes_integers else {})


@lru_cache(maxsize=64)
def _build(
    model: str,
    loss: str,
    input_shape: tuple[int, ...],
    num_outputs: int,
    tokens: int | None = None,
    targets: Targets | None = None,
    *,
    takes_integers: bool = False,
    several: str = "",
    rows: Rows | None = None,
) -> Problem:
    sizes = _sizes(tokens, takes_integers=takes_integers)
    # Only modules of the user's own have several inputs, and are tried on rows.
    extra: dict[str, Any] = {"parts": input_parts(several)} if several else {}
    extra |= {} if rows is None else {"rows": rows.tensor()}
    spec = parse_model(json.loads(model))
    network = built_network(spec, input_shape, num_outputs, **sizes, **extra)
    plain = {
        "model": json.loads(model),
        "loss": json.loads(loss) if loss[:1] == "{" else loss,
        "input_shape": input_shape,
        "num_outputs": num_outputs,
        "parameters": _listed(network.layout),
        **({INPUT_PARTS: json.loads(several)} if several else {}),
        **sizes,
    }
    if network.statistics.names:
        plain["statistics"] = _listed(network.statistics)
    if targets is not None:
        plain["targets"] = targets
    targets = targets or _usual_targets(loss, num_outputs, tokens)
    return Problem(
        network,
        loss,
        _encode(plain),
        input_shape,
        target_shape=targets.shape,
        has_labels=targets.are_labels,
        **sizes,
    )


def _usual_targets(loss: str, num_outputs: int, tokens: int | None) -> Targets:
    """Return the targets that a loss implies: labels or values."""
    if loss == "cross_entropy":
        return Targets(True, () if tokens is None else (tokens,))
    return Targets(False, (num_outputs,))


def forget() -> None:
    """Build all networks anew from now on, so that their factories are called."""
    _by_rows.clear()
    _read.cache_clear()
    _build.cache_clear()
    _of_integers.cache_clear()
    _of_several.cache_clear()
    network_loss.cache_clear()
    check_own_loss.cache_clear()


def _listed(layout: Layout) -> list[tuple[str, tuple[int, ...]]]:
    return list(zip(layout.names, layout.shapes, strict=True))


@dataclass(frozen=True)
class Samples:
    """Inputs and targets with a leading dimension for the models, 1 if shared.

    The inputs may be a `DiskTensor`; what `rows` and `taken` return is in memory.
    """

    inputs: Tensor
    targets: Tensor

    @property
    def count(self) -> int:
        """Number of samples, N."""
        return self.inputs.shape[1]

    @property
    def device(self) -> torch.device:
        """Device that holds the samples."""
        return self.inputs.device

    @property
    def num_targets(self) -> int:
        """Values per target, C; 1 for a label."""
        return self.targets.shape[2] if self.targets.ndim == 3 else 1

    def rows(self, chosen: slice) -> Samples:
        """Return the samples of a slice, the same for every model."""
        is_whole = chosen.indices(self.count) == (0, self.count, 1)
        if is_whole and not isinstance(self.inputs, DiskTensor):
            return self
        return Samples(self.inputs[:, chosen], self.targets[:, chosen])

    def models(self, chosen: slice | Tensor) -> Samples:
        """Return the samples of the chosen models; shared samples unchanged."""
        if len(self.inputs) == 1:
            return self
        return Samples(self.inputs[chosen], self.targets[chosen])

    def taken(self, rows_MB: Tensor) -> Samples:
        """Return for each model the samples of these numbers, (M, B)."""
        if len(self.inputs) == 1:
            inputs = shared_rows(self.inputs, rows_MB)
            return Samples(inputs, self.targets[0][rows_MB])
        models = torch.arange(len(self.inputs), device=rows_MB.device).unsqueeze(1)
        return Samples(self.inputs[models, rows_MB], self.targets[models, rows_MB])


def data_set_bytes(data: NodeData, item: int) -> int:
    """Return the bytes of a data set, as stored and as loaded.

    Args:
        data: the data set.
        item: bytes of a loaded number.
    """
    arrays = [data[name] for name in DATA_ARRAYS]
    return sum(
        read_bytes(data, MOST_READ, item)
        if is_on_disk(array)
        else array.nbytes + item * array.size
        for array in arrays
    )


def read_bytes(data: NodeData, rows: int, item: int) -> int:
    """Return the bytes of some inputs that are read from disk; 0 if they are not there.

    Args:
        data: the data set.
        rows: how many are read at once.
        item: bytes of a loaded number.
    """
    inputs = data["inputs"]
    if not is_on_disk(inputs):
        return 0
    rows = min(rows, len(inputs))
    return rows * (inputs.nbytes + item * inputs.size) // max(1, len(inputs))


def probed_bytes(member: Member) -> int:
    """Return the bytes of a probed member's data."""
    return data_set_bytes(member.one("data"), 8)


def load_samples(
    problem: Problem,
    data: Sequence[NodeData],
    prefix: str,
    device: str,
    dtype: torch.dtype,
    *,
    shares: bool = False,
) -> Samples:
    """Bring data sets to the device; a set that all models share is loaded once.

    Args:
        problem: whose samples they are.
        data: one per model, of equal shapes.
        prefix: empty, or `test_`.
        device: device to load to.
        dtype: precision of inputs and target values; labels and the tokens of a
            network that takes integers become int64.
        shares: arrays that are as wanted need not be copied: see `stacked`.

    Returns:
        The samples.
    """
    different = data if len({node.digest for node in data}) > 1 else data[:1]
    if (vocabulary := problem.network.vocabulary) is not None:
        for node in different:
            _check_tokens(node[prefix + "inputs"], vocabulary)

    for node in different:
        _check_labels(problem, node[prefix + "targets"])
        _check_inputs(problem, node)

    input_type = torch.int64 if problem.takes_integers else dtype
    inputs = [node[prefix + "inputs"] for node in different]
    on_disk = [cast("DiskArray", array) for array in inputs if is_on_disk(array)]
    loaded = problem.criterion.loaded
    targets = [loaded(node[prefix + "targets"]) for node in different]
    return Samples(
        as_tensor(DiskTensor(on_disk, input_type, device))
        if len(on_disk) == len(inputs)
        else stacked(inputs, input_type, device, shares=shares),
        stacked(targets, problem.target_type(dtype), device, shares=shares),
    )


def stacked(
    arrays: Sequence[Array], dtype: torch.dtype, device: str, *, shares: bool = False
) -> Tensor:
    """Return copies of arrays of equal shapes as one tensor, the arrays first.

    Args:
        arrays: in any precision; they are converted as they are copied, for a data set
            of double precision is twice that of single.
        dtype: of the tensor; numbers beyond it are infinite.
        device: of the tensor.
        shares: nothing is written to the tensor, so that a single array that is as
            wanted need not be copied.
    """
    first, wanted = arrays[0], _numpy_type(dtype)
    if shares and len(arrays) == 1 and is_as_wanted(first, dtype):
        return torch.as_tensor(first[np.newaxis], device=device)
    plain = np.empty((len(arrays), *first.shape), wanted)
    with np.errstate(over="ignore"):  # infinite, which is refused where it matters
        for place, array in zip(plain, arrays, strict=True):
            place[...] = array
    return torch.as_tensor(plain, device=device)


def is_as_wanted(array: Array, dtype: torch.dtype) -> bool:
    """Return whether an array in memory may be a tensor of a type without a copy.

    Args:
        array: in any precision.
        dtype: of the tensor.
    """
    # Of an array that may be read alone torch warns, others with strides it refuses, or
    # multiplies in another order than their copies.
    return bool(array.dtype == _numpy_type(dtype) and array.flags.carray)


@lru_cache(maxsize=16)
def _numpy_type(dtype: torch.dtype) -> np.dtype[Any]:
    return torch.empty(0, dtype=dtype).numpy().dtype


def _check_inputs(problem: Problem, data: NodeData) -> None:
    """Refuse data with other inputs than a network was trained on.

    Raises:
        InputError: names, shapes or types differ, or there is one input in place of
            several.
    """
    several, text = problem.input_parts, _several(data)
    given = json.loads(text) if text else []
    if several != given:
        expected, got = (
            ", ".join(part[0] for part in parts) or "one input"
            for parts in (several, given)
        )
        raise InputError(
            f"data: expected the inputs of the training, {expected}, got {got}, or "
            "others of these names. Take data like those of the training."
        )


def _check_labels(problem: Problem, labels: Array) -> None:
    """Refuse labels that a network has no output for.

    Raises:
        InputError: one is negative or beyond the classes, or does not count where all
            do.
    """
    loss = parse_loss(problem.loss)
    if loss_name(loss) != "cross_entropy":
        return
    counted = labels
    if isinstance(loss, CrossEntropy):
        is_ignored = (labels == loss.ignore_index) | (labels == IGNORED)
        counted = labels[~is_ignored]
    classes = problem.num_outputs
    wrong = counted[(counted < 0) | (counted >= classes)]
    if wrong.size:
        raise InputError(
            f"targets: expected labels from 0 to {classes - 1}, of which the network "
            f"was trained on all, got {int(wrong.flat[0])}. Take data like those of "
            "the training."
        )


def _check_tokens(tokens: Array, vocabulary: int) -> None:
    """Refuse tokens that have no embedding.

    Raises:
        InputError: one is negative, or beyond the vocabulary.
    """
    least, most = (int(f(initial=0)) for f in (tokens.min, tokens.max))
    if least < 0 or most >= vocabulary:
        raise InputError(
            f"model: expected tokens from 0 to {vocabulary - 1}, got "
            f"{least if least < 0 else most}. Set vocabulary to the number of "
            "different tokens, or number them from 0."
        )


@dataclass(frozen=True)
class Apart:
    """Key of a member that is computed by itself, whatever its siblings.

    Attributes:
        member: its identity: a copy in the same tile is not computed again.
    """

    member: int


def grouped(
    members: Sequence[Member],
    alike: Callable[[Member], object],
    compute: Callable[[Sequence[Member]], list[T]],
) -> list[T]:
    """Compute members with equal keys together, and return results in their order.

    Tiles are guessed from parameters; data of unequal size or another number of classes
    show only now. A member alone in its group is computed with a copy of itself, for
    the last bits of a batch of one differ; not so one that always is a batch of one.

    Args:
        members: members of one tile.
        alike: key of the members that one program can compute; `Apart` of one that is
            computed by itself.
        compute: from members with equal keys to their results.

    Returns:
        One result per member.
    """
    groups: dict[object, list[int]] = {}
    for number, member in enumerate(members):
        groups.setdefault(alike(member), []).append(number)
    results: dict[int, T] = {}
    for key, numbers in groups.items():
        several = [members[n] for n in numbers]
        if isinstance(key, Apart):
            results.update(dict.fromkeys(numbers, compute(several[:1])[0]))
            continue
        if len(several) == 1 < len(members):
            several *= 2
        results.update(zip(numbers, compute(several), strict=False))
    return [results[number] for number in range(len(members))]


def data_shapes(data: NodeData) -> tuple[tuple[int, ...], ...]:
    """Return the shapes that must agree for data sets to be stacked."""
    return tuple(data[name].shape for name in DATA_ARRAYS)
