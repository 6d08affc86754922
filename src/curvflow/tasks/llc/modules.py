"""Targets of chains about any torch module, with any loss and data."""

from __future__ import annotations

import copy
import math
import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.utils._pytree import tree_leaves, tree_map

from curvflow.errors import InputError
from curvflow.schemas.losses import IGNORED, LossName
from curvflow.schemas.models.mlp import Mlp
from curvflow.schemas.nodes import NodeData
from curvflow.tasks.llc.targets import (
    PASS_NUMBERS,
    ProblemAt,
    free_parameters,
    problem_targets,
    sum_over_free,
)
from curvflow.tasks.networks.problems import Problem, Samples, pose
from curvflow.tasks.numerics.derivatives.batches import LOSSES, Batch, few_of
from curvflow.tasks.numerics.derivatives.differentiation_modes import Order
from curvflow.tasks.numerics.derivatives.hessians import BatchedHessian
from curvflow.tasks.numerics.derivatives.modules import hessian
from curvflow.tasks.numerics.derivatives.subjects import (
    Loss,
    Settings,
    Subject,
    subject,
)
from curvflow.tasks.numerics.derivatives.variances import gradient_variance
from curvflow.tasks.numerics.operators.algebra import PrincipalBlock
from curvflow.tasks.numerics.operators.base import BatchedOperator
from curvflow.tasks.numerics.sampling.chain_targets import ChainTargets
from curvflow.tasks.numerics.sampling.module_losses import (
    ModuleLosses,
    rows_of,
    whole_batch,
)

# Bytes that products with the Hessian may take in one pass over samples.
HESSIAN_BYTES = 1 << 28

_ACTIVATIONS: dict[type[nn.Module], str] = {
    nn.ReLU: "relu",
    nn.Tanh: "tanh",
    nn.GELU: "gelu",
    nn.Sigmoid: "sigmoid",
    nn.Identity: "identity",
}
_SIGNS: dict[type[nn.Module], str] = {
    nn.Linear: "L",
    **dict.fromkeys(_ACTIVATIONS, "a"),
}


def module_targets(
    net: nn.Module,
    loss: Loss | str,
    data: Any,
    *,
    layers: Sequence[str] | None,
    seed: int,
    dtype: torch.dtype | None,
    settings: Settings,
) -> ChainTargets:
    """Return the weights of a module as the target of chains.

    A sequence of dense layers with a loss known by name is computed as the studies'
    `mlp` is, so that both give equal bits; any other module by automatic
    differentiation.

    Args:
        net: the module, in eval or in train mode.
        loss: of outputs and targets, or its name.
        data: one batch, a list of batches, or a loader; kept in memory.
        layers: names or patterns of the parameters that move; None moves all that
            require a gradient.
        seed: of all that is drawn.
        dtype: precision; None for that of the module.
        settings: see `Settings`.

    Returns:
        One target.

    Raises:
        InputError: parameters, loss or data cannot be taken; the cause is named.
    """
    of = subject(net, loss, data, settings, moves=True)
    if (dtype or of.weights.dtype) not in (torch.float32, torch.float64):
        raise InputError(
            f"module: expected parameters in float32 or float64, got "
            f"{of.weights.dtype}. Cast it, or pass dtype."
        )
    batch = whole_batch(of)
    if dtype is not None and dtype != of.weights.dtype:
        first = _cast(next(of.batches()), dtype)
        net, batch = copy.deepcopy(net).to(dtype), _cast(batch, dtype)
        of = subject(net, loss, [first], settings, moves=True)
    batch = _counting(net, of, batch)
    # Checked on the first batch alone: all samples at once may not fit into memory.
    of = replace(of, data=[batch])
    free = free_parameters([_short(name) for name in of.names], of.sizes, layers)
    problem = None if settings.get("forward") else _problem(net, of, batch)
    if problem is not None:
        targets = _mlp_targets(problem, of, batch, seed, free)
    else:
        targets = _autograd_targets(net, loss, of, batch, seed, free, settings)
    _check_loss(float(targets.first_losses), batch)
    return targets


def _counting(net: nn.Module, of: Subject, batch: Batch) -> Batch:
    """Return a batch without the samples that have no label that counts.

    They are no observations, and their own mean would be that of nothing. In a batch
    norm in training they meet the others, and stay.
    """
    weights_N = of.weights_of(batch)
    in_training = (m for m in net.modules() if isinstance(m, _BatchNorm) and m.training)
    if weights_N is None or bool((weights_N > 0).all()) or any(in_training):
        return batch
    return rows_of(batch, weights_N > 0)


def _check_loss(loss: float, batch: Batch) -> None:
    """Refuse data over which the mean loss is not finite, before chains begin."""
    if math.isfinite(loss):
        return
    samples = [
        leaf.flatten(1) if leaf.ndim > 1 else leaf[:, None]
        for leaf in tree_leaves(batch)
        if isinstance(leaf, Tensor) and leaf.ndim and leaf.is_floating_point()
    ]
    wrong = {
        number
        for rows in samples
        for number in (~rows.isfinite()).any(1).nonzero().flatten().tolist()
    }
    cause = (
        f"; {len(wrong)} samples hold NaN or infinity, the first is number {min(wrong)}"
        if wrong
        else ", although all samples are finite"
    )
    raise InputError(
        f"data: expected a finite mean loss over all samples, got {loss}{cause}. "
        "Remove or rescale the samples whose loss is not finite."
    )


def _cast(batch: Batch, dtype: torch.dtype) -> Batch:
    def cast(leaf: Any) -> Any:
        floats = isinstance(leaf, Tensor) and leaf.is_floating_point()
        return leaf.to(dtype) if floats else leaf

    return tree_map(cast, batch)


def _short(name: str) -> str:
    return name.removeprefix("module.")


def _problem(net: nn.Module, of: Subject, batch: Batch) -> Problem | None:
    """Return the problem of a study that a module, loss and data are, or None."""
    spec = mlp_of(net)
    name = of.likelihood.name if of.likelihood else ""
    if spec is None or name not in LOSSES or not _are_samples(batch):
        return None
    inputs, targets = batch
    is_flat = inputs.ndim == 2 or _flattens(_layers(net))
    labels = targets.ndim == 1 and not targets.is_floating_point()
    if not is_flat or labels != (name == "cross_entropy"):
        return None
    if labels and bool((targets == IGNORED).any()):
        return None
    outputs = of.shapes[-1][0]
    shapes = {"inputs": inputs, "targets": targets, "num_classes": outputs}
    loss = cast("LossName", name)
    return pose(spec, loss, cast("NodeData", shapes | {"test_targets": targets[:0]}))


def _are_samples(batch: Batch) -> bool:
    pair = isinstance(batch, tuple | list) and len(batch) == 2
    return pair and all(isinstance(part, Tensor) for part in batch)


def mlp_of(net: nn.Module) -> Mlp | None:
    """Return the specification of a sequence of dense layers, or None.

    Args:
        net: dense layers with one kind of activation between them, all with a bias or
            all without; a first flattening, and dropout in eval mode, may be there.
    """
    layers = [layer for layer in _layers(net) if not _is_off(layer)]
    layers = layers[1:] if _flattens(layers) else layers
    signs = "".join(_SIGNS.get(type(layer), "?") for layer in layers)
    if not re.fullmatch("(La?)*L", signs) or any(map(_is_changed, layers)):
        return None
    dense = [layer for layer in layers if isinstance(layer, nn.Linear)]
    names = _activations(layers)
    kinds = {name for name in names if name != "identity"}
    biased = {layer.bias is not None for layer in dense}
    if len(kinds) > 1 or len(biased) > 1 or not _all_move(net, dense):
        return None
    return Mlp.model_validate(
        {
            "hidden": [layer.out_features for layer in dense[:-1]],
            "activation": kinds.pop() if kinds else "identity",
            "linear_layers": _linear(names),
            "bias": biased.pop(),
        }
    )


def _layers(net: nn.Module) -> list[nn.Module]:
    """Return the layers of nested sequences, in the order in which they are called."""
    if type(net) is nn.Sequential and not _has_hooks(net):
        return [layer for child in net for layer in _layers(child)]
    return [net]


def _has_hooks(layer: nn.Module) -> bool:
    return bool(layer._forward_hooks or layer._forward_pre_hooks)


def _is_changed(layer: nn.Module) -> bool:
    """Return whether a layer computes other than its class says."""
    return _has_hooks(layer) or getattr(layer, "approximate", "none") != "none"


def _is_off(layer: nn.Module) -> bool:
    return type(layer) is nn.Dropout and not layer.training


def _flattens(layers: Sequence[nn.Module]) -> bool:
    first = layers[0] if layers else None
    if not isinstance(first, nn.Flatten) or _has_hooks(first):
        return False
    return (first.start_dim, first.end_dim) == (1, -1)


def _activations(layers: Sequence[nn.Module]) -> list[str]:
    """Return the activation after each dense layer but the last."""
    names: list[str] = []
    for layer in layers:
        if isinstance(layer, nn.Linear):
            names.append("identity")
        else:
            names[-1] = _ACTIVATIONS[type(layer)]
    return names[:-1]


def _linear(names: Sequence[str]) -> list[int]:
    """Return the hidden layers without activation; none if no layer has one."""
    numbers = [n for n, name in enumerate(names, 1) if name == "identity"]
    return [] if len(numbers) == len(names) else numbers


def _all_move(net: nn.Module, dense: Sequence[nn.Linear]) -> bool:
    """Return whether each dense layer has separate parameters that move."""
    parameters = list(net.parameters())
    expected = sum(1 + (layer.bias is not None) for layer in dense)
    return len(parameters) == expected and all(p.requires_grad for p in parameters)


def _mlp_targets(
    problem: Problem, of: Subject, batch: Batch, seed: int, free: Tensor | None
) -> ChainTargets:
    samples = Samples(*(part.unsqueeze(0) for part in batch))
    at = ProblemAt(problem, samples, of.weights[None], of.weights.new_zeros(1, 0))

    def operator(columns: int) -> BatchedOperator:
        # In double precision, as a study measures it.
        inputs, targets = (_cast(part, torch.float64) for part in batch)
        whole = BatchedHessian(
            problem.losses,
            at.weights.double(),
            inputs.unsqueeze(0),
            targets.unsqueeze(0),
            fixed_MS=at.statistics.double(),
            batch_size=problem.rows_per_pass(columns),
            models_per_pass=2,
            key=problem.text,
        )
        if free is None:
            return whole
        return PrincipalBlock(whole, free.nonzero().squeeze(1))

    return problem_targets(at, [seed], free, operator)


def _autograd_targets(
    net: nn.Module,
    loss: Loss | str,
    of: Subject,
    batch: Batch,
    seed: int,
    free: Tensor | None,
    settings: Settings,
) -> ChainTargets:
    losses, weighed = ModuleLosses(of), settings
    if losses.weights is not None:
        weighed = settings | Settings(size_of=losses.weight_of)

    def operator(columns: int) -> BatchedOperator:
        rows = max(1, HESSIAN_BYTES // (losses.bytes_per_sample * columns))
        whole = _hessian(net, loss, list(losses.parts(rows)), weighed)
        if free is None:
            return whole
        return PrincipalBlock(whole, free.nonzero().squeeze(1))

    return ChainTargets(
        lambda _owner_C: losses,
        losses.num_samples,
        of.weights[None],
        [seed],
        None if free is None else free.to(of.weights.device),
        operator,
        _variance(losses, of, free),
        counted=[losses.num_counted],
    )


def _variance(
    losses: ModuleLosses, of: Subject, free: Tensor | None
) -> Callable[[Tensor, Tensor], Tensor]:
    """Return the function that estimates the variance of gradients over samples."""

    def variance_of(weights_MD: Tensor, rows_Mn: Tensor) -> Tensor:
        rows_Mn = rows_Mn.to(weights_MD.device)
        variance = gradient_variance(
            losses.sample_losses,
            weights_MD,
            rows_Mn,
            rows_Mn,
            sizes=of.sizes,
            num_samples=losses.num_samples,
            fixed_MS=weights_MD.new_zeros(len(weights_MD), 0),
            samples_per_pass=max(1, min(64, PASS_NUMBERS // len(of.weights))),
        )
        return sum_over_free(variance.layer_variance, of.sizes, free)

    return variance_of


def _hessian(
    net: nn.Module, loss: Loss | str, batches: list[Batch], settings: Settings
) -> BatchedOperator:
    """Return the Hessian by the faster mode, or by the one that any module has."""
    few = hessian(
        net, loss, [few_of(batches[0])], order="forward_over_reverse", **settings
    )
    order: Order = "forward_over_reverse"
    try:
        few @ torch.ones(few.shape[0], dtype=few.dtype, device=few.device)
    # A module may lack forward derivatives in any way.
    except Exception:
        order = "reverse_over_reverse"
    return hessian(net, loss, batches, order=order, **settings).batched
