"""Curvature operators of networks: one batched operator over a tile's members."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache, partial

import torch
from torch import Tensor

from curvflow.errors import InputError, summary
from curvflow.schemas.kinds.shared.operators import (
    ModeParams,
    OperatorParams,
    OrderName,
)
from curvflow.schemas.nodes import Member
from curvflow.tasks.networks.problems import (
    CountBytes,
    OperatorInputs,
    Problem,
    data_shapes,
    first_rows,
    load_samples,
    meta_inputs,
    read,
    stacked,
)
from curvflow.tasks.numerics.derivatives.differentiation_modes import (
    Derivatives,
    Trial,
    tried,
)
from curvflow.tasks.numerics.derivatives.gauss_newton import (
    BatchedGaussNewton,
    BatchedResidual,
)
from curvflow.tasks.numerics.derivatives.gauss_newton import Kind as GaussNewton
from curvflow.tasks.numerics.derivatives.guards import is_of_derivatives
from curvflow.tasks.numerics.derivatives.hessians import BatchedHessian
from curvflow.tasks.numerics.derivatives.passes import Averaged, models_together
from curvflow.tasks.numerics.operators.base import BatchedOperator
from curvflow.tasks.registry import Machine
from curvflow.tasks.training.batch_draws import BatchDraws

# Samples on which a network in training is derived to see whether it can be.
TRIAL_SAMPLES = 4


def network_text(member: Member) -> str:
    """Return the JSON that describes the network of a member's weights."""
    return str(member.one("weights")["network"].item())


def problem_of(member: Member) -> Problem:
    """Return the network and the loss of a member's weights."""
    data = member.inputs.get("data", ())
    return read(network_text(member), partial(first_rows, data[0]) if data else None)


def problem_key(member: Member) -> object:
    """Return the key that members of one batched operator share."""
    return network_text(member), data_shapes(member.one("data"))


def stacked_weights(
    members: Sequence[Member],
    machine: Machine,
    *,
    dtype: str,
    shares: bool = False,
) -> Tensor:
    """Bring the weights of all members to the device; record how networks compute.

    Args:
        members: each with `weights` (D,).
        machine: the device to load to.
        dtype: `float32` or `float64`.
        shares: weights that are as wanted need not be copied: see `stacked`.

    Returns:
        Parameters and statistics, (M, D + S).

    Raises:
        InputError: a weight is NaN or infinite.
    """
    given = [member.one("weights")["weights"] for member in members]
    weights_MW = stacked(given, getattr(torch, dtype), "cpu", shares=shares)
    # Where the sum is finite all are, and it takes a fraction of the time.
    if not (math.isfinite(weights_MW.sum()) or weights_MW.isfinite().all()):
        raise InputError(
            "weights: expected finite numbers, got NaN or infinity. Probe weights of "
            "training that has not diverged."
        )
    if note := problem_of(members[0]).network.note:
        machine.partial.record(note)
    return weights_MW.to(machine.device)


def batched_operator(
    members: Sequence[Member],
    machine: Machine,
    params: Sequence[OperatorParams],
    *,
    names: tuple[str, ...],
    columns: int,
) -> BatchedOperator:
    """Build the curvature matrices of all members as one batched operator.

    Args:
        members: each with `weights` and `data`, of the same problem.
        machine: the device to compute on.
        params: parameters of each member; they differ in the seed at most.
        names: the parameter tensors of the diagonal block.
        columns: vectors that will be multiplied at once.

    Returns:
        The operator, shape (M, D, D), D the size of these tensors.

    Raises:
        InputError: a weight is NaN or infinite.
    """
    chosen = params[0]
    source = _source(members, machine, chosen.dtype, columns, names, modes=params)
    built = _BUILDERS[chosen.operator](_in_training(source, params), params)
    if not source.goes_alone:
        return built
    return built.one_by_one(keeps=_is_counted(members, chosen, columns, names))


def batched_hessian(
    members: Sequence[Member],
    machine: Machine,
    *,
    dtype: str,
    columns: int,
    names: tuple[str, ...] | None = None,
    modes: Sequence[ModeParams] = (),
) -> BatchedHessian:
    """Build the Hessians of the mean training loss of all members as one operator.

    The loss is the training loss, averaged over the samples (for sse too); weight decay
    and other regularisers of the learning rule do not enter.

    Args:
        members: each with `weights` and `data`, of the same problem.
        machine: the device to compute on.
        dtype: precision of the products.
        columns: vectors that will be multiplied at once.
        names: the parameter tensors of the diagonal block; None for all.
        modes: of each member, which differ in the seed at most; none is evaluation.

    Returns:
        The operator, shape (M, D, D).

    Raises:
        InputError: a weight is NaN or infinite.
    """
    source = _source(members, machine, dtype, columns, names, modes=modes)
    hessian = _hessian(_in_training(source, modes) if modes else source)
    if not source.goes_alone:
        return hessian
    # Forward over reverse prepares nothing; a graph of each is in no estimate.
    return hessian.one_by_one(keeps=len(members) == 1)


@dataclass(frozen=True)
class _OperatorSource:
    """A problem, the tensors of its operators, and a log for the fastest mode.

    Attributes:
        problem: network and loss.
        inputs: of its operators.
        record: the log.
        goes_alone: each model has separate passes.
    """

    problem: Problem
    inputs: OperatorInputs
    record: Callable[[str], None]
    goes_alone: bool = False


def _source(
    members: Sequence[Member],
    machine: Machine,
    dtype: str,
    columns: int,
    names: tuple[str, ...] | None = None,
    *,
    modes: Sequence[ModeParams] | None,
) -> _OperatorSource:
    # A pass takes as many samples as of the whole, so that sums keep their order.
    problem = whole = problem_of(members[0])
    weights_MW = stacked_weights(members, machine, dtype=dtype)
    if names is not None and names != problem.network.layout.names:
        weights_MW = weights_MW[:, problem.network.places(names)]
        problem = problem.of_parameters(names)
    weights_MD, statistics_MS = problem.network.split(weights_MW)
    data = [member.one("data") for member in members]
    samples = load_samples(problem, data, "", machine.device, weights_MD.dtype)
    together = rows_together(members[0], modes[0]) if modes else None
    most = max(2, len(members))
    if weights_MD.device.type == "cpu":
        most = models_together(
            whole.models_per_pass(samples.count, columns, together),
            has_plain_path=whole.network.takes_leaves,
        )
    inputs = OperatorInputs(
        weights_MD=weights_MD,
        inputs=samples.inputs,
        targets=samples.targets,
        fixed_MS=statistics_MS,
        batch_size=whole.rows_per_pass(columns),
        models_per_pass=most,
    )
    return _OperatorSource(
        problem, inputs, machine.partial.record, goes_alone=most == 1
    )


def batch_draws(modes: Sequence[ModeParams], count: int) -> BatchDraws | None:
    """Return the random numbers of networks in training; None in evaluation.

    Args:
        modes: of each model; they differ in the seed at most.
        count: samples of the data, N.
    """
    if modes[0].mode == "eval":
        return None
    size = min(modes[0].train_batch_size or count, count)
    return BatchDraws([mode.seed for mode in modes], size)


def record_meeting(machine: Machine, size: int) -> None:
    """Record that samples of networks in training meet in batches drawn at random.

    Args:
        machine: with the receipt of the computed tile.
        size: samples of a batch.
    """
    machine.partial.record(
        f"mode train: a batch norm takes the statistics of random batches of {size}, "
        "and dropout draws one mask for each from the probe's seed"
    )


def rows_together(member: Member, mode: ModeParams) -> int | None:
    """Return how many samples meet in a pass of a network in training, else None.

    Args:
        member: with `data`.
        mode: of its network.
    """
    if mode.mode == "eval":
        return None
    return mode.train_batch_size or len(member.one("data")["inputs"])


def _in_training(
    source: _OperatorSource, modes: Sequence[ModeParams]
) -> _OperatorSource:
    """Return the same source, its passes batches where networks are in training."""
    draws = batch_draws(modes, source.inputs["inputs"].shape[1])
    if draws is None:
        return source
    size = draws.batch_size
    source.record(
        f"mode train: a batch norm takes the statistics of batches of {size} in the "
        "order of the data, and dropout draws from the probe's seed"
    )
    inputs: OperatorInputs = {**source.inputs, "batch_size": size, "draws": draws}
    return _derivable(replace(source, inputs=inputs))


def _derivable(source: _OperatorSource) -> _OperatorSource:
    """Return a source in training with what derivatives its network has there.

    A module of the user's own has been derived in evaluation alone.

    Raises:
        InputError: it cannot be derived twice in training.
        RuntimeError: whatever else goes wrong.
    """
    network, weights_MD = source.problem.network, source.inputs["weights_MD"]
    if not network.takes_leaves or network.derivatives != "all":
        return source
    few: OperatorInputs = {
        **source.inputs,
        "inputs": source.inputs["inputs"][:, :TRIAL_SAMPLES],
        "targets": source.inputs["targets"][:, :TRIAL_SAMPLES],
        "batch_size": TRIAL_SAMPLES,
    }
    orders: dict[Derivatives, OrderName] = {
        "all": "forward_over_reverse",
        "reverse": "reverse_over_reverse",
    }
    for derivatives, order in orders.items():
        in_order = replace(network, derivatives=derivatives)
        problem = replace(source.problem, network=in_order)
        try:
            _ = BatchedHessian(problem.losses, **few, order=order) @ weights_MD
        # Layers lack derivatives in many ways.
        except RuntimeError as error:
            if not is_of_derivatives(error):
                raise
            lacks = error
            continue
        if derivatives == "reverse":
            source.record(
                "mode train: second derivatives are taken by reverse mode, for a layer "
                "in training has no others"
            )
        return replace(source, problem=problem)
    raise InputError(
        f"model: expected second derivatives in training, got {summary(lacks)}. Take "
        "mode eval, or replace the layer that lacks them."
    ) from lacks


def _hessian(
    source: _OperatorSource, order: OrderName = "forward_over_reverse"
) -> BatchedHessian:
    network = source.problem.network
    network.check_derivatives()
    if network.derivatives == "reverse":
        order = "reverse_over_reverse"

    def report_trial(trial: Trial) -> None:
        source.record(f"order of differentiation: {trial.order} was the fastest")

    return BatchedHessian(
        source.problem.losses,
        **source.inputs,
        order=order,
        key=(source.problem.text, source.problem.network.layout.names),
        tell=report_trial,
    )


def _residual(source: _OperatorSource, params: Sequence[OperatorParams]) -> Averaged:
    problem, order = source.problem, params[0].order
    problem.network.check_derivatives()
    if problem.network.derivatives == "reverse":
        order = "reverse_over_reverse"
    return BatchedResidual(
        problem.network.outputs,
        problem.criterion.of_samples,
        **source.inputs,
        order=order,
    )


def _gauss_newton(
    kind: GaussNewton, source: _OperatorSource, params: Sequence[OperatorParams]
) -> Averaged:
    problem = source.problem
    if kind not in ("empirical", "covariance"):
        problem.network.check_derivatives()
    criterion = problem.criterion
    if kind == "type-2" and criterion.has_fisher:
        kind = "ggn"
    return BatchedGaussNewton(
        problem.network.outputs,
        problem.criterion.of_samples,
        **source.inputs,
        kind=kind,
        loss=criterion.law or problem.loss,
        mc_samples=params[0].mc_samples,
        seeds=[member.seed for member in params],
        derivatives=problem.network.derivatives,
        sizes=problem.network.layout.sizes,
    )


_BUILDERS: dict[
    str, Callable[[_OperatorSource, Sequence[OperatorParams]], Averaged]
] = {
    "hessian": lambda source, params: _hessian(source, params[0].order),
    "residual": _residual,
    "ggn": partial(_gauss_newton, "ggn"),
    "fisher_type2": partial(_gauss_newton, "type-2"),
    "fisher_mc": partial(_gauss_newton, "mc"),
    "fisher_empirical": partial(_gauss_newton, "empirical"),
    "gradient_covariance": partial(_gauss_newton, "covariance"),
}


def product_bytes(
    member: Member, params: OperatorParams, columns: int, names: tuple[str, ...]
) -> int:
    """Return the estimated peak bytes of one member's products.

    Args:
        member: with `weights` and `data`.
        params: operator, order of differentiation and precision.
        columns: vectors multiplied at once.
        names: the parameter tensors of the diagonal block.
    """
    count, data = _counter(params, names), member.one("data")
    rows, problem = rows_together(member, params), problem_of(member)
    products = problem.product_bytes(data, columns, count, rows)
    if len(names) == len(problem.network.layout.names):
        return products
    # Of few parameters the outputs weigh as much as what is counted, once more.
    rows = min(rows or problem.rows_per_pass(columns), len(data["inputs"]))
    outputs = problem.num_outputs * (problem.tokens or 1)
    return products + 8 * rows * outputs * columns


def _counter(params: OperatorParams, names: tuple[str, ...]) -> CountBytes:
    """Return the function that counts the bytes of products, once for each shape."""
    # The other parameters do not change memory.
    chosen = OperatorParams(
        operator=params.operator,
        order=params.order,
        dtype=params.dtype,
        mc_samples=params.mc_samples,
        mode=params.mode,
        train_batch_size=params.train_batch_size,
    )
    return partial(_counted_bytes, chosen, names)


def _is_counted(
    members: Sequence[Member],
    params: OperatorParams,
    columns: int,
    names: tuple[str, ...],
) -> bool:
    """Return whether the estimated memory covers a graph of each of some models.

    It does of one, and where products that keep a graph of all samples can be counted.
    """
    if len(members) == 1:
        return True
    samples = len(members[0].one("data")["inputs"])
    count, text = _counter(params, names), network_text(members[0])
    try:
        count(text, samples, samples, columns)
    # A module of the user's own may want numbers, and fail in any way without.
    except Exception:
        return False
    return True


@lru_cache(maxsize=256)
def _counted_bytes(
    chosen: OperatorParams,
    names: tuple[str, ...],
    text: str,
    rows: int,
    samples: int,
    columns: int,
) -> int:
    """Return half the peak bytes of products of two models."""
    if chosen.order == "auto":
        orders = tried(keeps=rows == samples, columns=columns)
        by_order = [chosen.model_copy(update={"order": order}) for order in orders]
        return max(
            _counted_bytes(choice, names, text, rows, samples, columns)
            for choice in by_order
        )
    problem = read(text).of_parameters(names)
    inputs = meta_inputs(problem, rows, samples, getattr(torch, chosen.dtype))
    both = [chosen, chosen]
    source = _in_training(_OperatorSource(problem, inputs, lambda _: None), both)
    operator = _BUILDERS[chosen.operator](source, both)
    return operator.product_bytes(columns) // 2
