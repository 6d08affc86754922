"""Natural gradient descent, for stacked models."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from itertools import accumulate

import torch
from torch import Tensor

from curvflow.errors import InputError
from curvflow.schemas.models import model_name
from curvflow.tasks.networks.network import Network
from curvflow.tasks.networks.problems import Problem, Samples
from curvflow.tasks.numerics.derivatives.fishers import (
    fisher_draws,
    fisher_roots,
    fisher_rows,
    outer_rows,
)
from curvflow.tasks.numerics.derivatives.output_laws import LAWS
from curvflow.tasks.numerics.derivatives.passes import spans
from curvflow.tasks.numerics.derivatives.row_factors import FullRows, Rows, damped_solve
from curvflow.tasks.training.cache_blocks import CPU_PASS_BYTES, GPU_PASS_BYTES
from curvflow.tasks.training.step_context import Hyper, Step


def init(weights_MD: Tensor, hyper: Hyper, problem: Problem) -> None:
    """Keep nothing.

    Raises:
        InputError: the gradient of a sample depends on the other samples.
    """
    network = problem.network
    if network.statistics.names and network.moves_statistics:
        name = model_name(json.loads(problem.text)["model"])
        raise InputError(
            "rule: ngd: expected a model whose samples do not meet, got "
            f"{name} with batch norm. Leave it out, or use ngd_online."
        )


def step(
    gradient_MD: Tensor, state: None, weights_MD: Tensor, hyper: Hyper, context: Step
) -> tuple[Tensor, None]:
    """Take one step: w <- w - lr (F + kappa I)^-1 g, kappa = alpha / D max(tr F, eps).

    F is the Fisher matrix of the loss that is minimised: the mean over samples of
    their matrices, for sse the sum. It is taken without dropout.

    Args:
        gradient_MD: gradients g of the loss.
        state: none.
        weights_MD: weights w.
        hyper: lr, alpha, eps and norm_match (0 or 1), each (M, 1), and the choices
            fisher, num_samples and fisher_batch.
        context: for the network, the batch and draws.

    Returns:
        The new weights, and no state.

    Reference:
        Amari (1998), Neural Computation 10(2); the damping is that of Povey, Zhang and
        Khudanpur (2015), arXiv:1410.7455, here for the whole matrix, solved exactly.
    """
    direction_MD = _solved(gradient_MD, weights_MD, hyper, context)
    length_M1 = torch.linalg.vector_norm(
        gradient_MD, dim=1, keepdim=True, dtype=direction_MD.dtype
    )
    present_M1 = torch.linalg.vector_norm(direction_MD, dim=1, keepdim=True)
    is_matched_M1 = (hyper["norm_match"] > 0) & (present_M1 > 0)
    direction_MD *= torch.where(is_matched_M1, length_M1 / present_M1, 1)
    direction_MD = direction_MD.to(weights_MD)
    return torch.addcmul(weights_MD, hyper["lr"], direction_MD, value=-1), None


def _solved(
    gradient_MD: Tensor, weights_MD: Tensor, hyper: Hyper, context: Step
) -> Tensor:
    """Return (F + kappa I)^-1 g in double precision, some models at a time."""
    rule, problem, count = hyper.rule, context.problem, context.batch.count
    law = problem.criterion.law
    if law is None:
        raise InputError(
            "rule: ngd cannot be combined with a loss that is no likelihood. Take one "
            f"of {', '.join(LAWS)}, or another rule."
        )
    if problem.tokens is not None:
        raise InputError(
            "rule: ngd cannot be combined with labels of tokens. Take data with one "
            "label for each sample, or another rule."
        )
    outputs = problem.num_outputs
    batch = _chosen(context, rule.fisher_batch)
    uniform = None
    if rule.fisher == "sampled":
        draws = fisher_draws(law, outputs, rule.num_samples)
        uniform = context.draw((batch.count, *draws))
    share = (count if problem.criterion.is_sum else 1) / batch.count

    def solved(span: slice) -> Tensor:
        samples, statistics = batch.models(span), context.statistics[span]
        drawn = None if uniform is None else uniform[span]

        def roots(outputs_MNC: Tensor) -> Tensor:
            factors = fisher_roots(
                rule.fisher, law, outputs_MNC, samples.targets, drawn
            )
            return math.sqrt(share) * factors

        return damped_solve(
            _rows(problem.network, weights_MD[span], statistics, samples.inputs, roots),
            gradient_MD[span],
            hyper["alpha"][span].double(),
            hyper["eps"][span].double(),
        )

    each = 8 * rule.scratch(problem.network.layout.shapes, count, outputs)
    most = CPU_PASS_BYTES if weights_MD.device.type == "cpu" else GPU_PASS_BYTES
    return torch.cat([solved(span) for span in spans(len(weights_MD), most // each)])


def _rows(
    network: Network,
    weights_MD: Tensor,
    statistics_MS: Tensor,
    inputs: Tensor,
    roots: Callable[[Tensor], Tensor],
) -> Rows:
    """Return the rows of F, by outer products where all layers are dense."""
    layout = network.layout
    starts = [0, *accumulate(layout.sizes)]
    places = dict(zip(layout.names, starts, strict=False))

    def whole(weights_MD: Tensor) -> Tensor:
        copies = len(weights_MD) // len(statistics_MS)  # a model for each sample
        held_MS = statistics_MS.repeat_interleave(copies, dim=0).to(weights_MD)
        return torch.cat([weights_MD, held_MS], dim=1)

    outer = outer_rows(
        lambda weights_MD, x: network.outputs_and_uses(whole(weights_MD), x),
        places,
        weights_MD,
        inputs,
        roots,
    )
    if outer is not None:
        return outer
    return FullRows(
        fisher_rows(
            lambda weights_MD, x: network.outputs(whole(weights_MD), x),
            weights_MD,
            inputs,
            roots,
        )
    )


def _chosen(context: Step, wanted: int | None) -> Samples:
    """Return some of the samples of the batch, drawn without replacement."""
    count = context.batch.count
    if wanted is None or wanted >= count:
        return context.batch
    return context.batch.taken(context.draw((count,)).argsort(dim=1)[:, :wanted])
