"""Memory of the passes that K-FAC finds its factors in, counted without numbers."""

from __future__ import annotations

from functools import lru_cache
from typing import Any, NamedTuple

import torch
from torch import Tensor

from curvflow.schemas.rules import Rule
from curvflow.schemas.rules.kfac._quadratic import QuadraticRule
from curvflow.tasks.networks.problems import (
    PASS_COPIES,
    Problem,
    meta_inputs,
    read,
)
from curvflow.tasks.numerics.derivatives.passes import Part, peak_bytes
from curvflow.tasks.numerics.kronecker.moments import Moments
from curvflow.tasks.numerics.kronecker.recorded import Recorded
from curvflow.tasks.rules.shared.kfac_networks import CPU_GRAPH_BYTES, Labels, labels_of
from curvflow.tasks.rules.shared.kfac_parts import parts_of


class PassBytes(NamedTuple):
    """Bytes of the passes of a tile: of each member, and those that all share."""

    each: int = 0
    shared: int = 0


def factor_pass_bytes(
    rule: Rule, problem: Problem, batch: int, dtype: torch.dtype
) -> PassBytes:
    """Return the estimated peak bytes of passes; 0 of a rule without factors.

    A single model is one of two. Of large models two are in a pass, however many there
    are, so that all members share it; else each adds its own.

    Args:
        rule: of training, maybe around another.
        problem: network and loss.
        batch: samples of a step.
        dtype: of training.
    """
    inner = [value for _, value in rule if isinstance(value, Rule)]
    counts = [factor_pass_bytes(part, problem, batch, dtype) for part in inner]
    has_factors = getattr(rule, "preconditioner", "kron") != "none"
    if isinstance(rule, QuadraticRule) and has_factors:
        labels = labels_of(rule, problem)
        chosen = {
            "kfac_approx": rule.kfac_approx,
            "separate": rule.separate_weight_and_bias,
        }
        outputs = problem.num_outputs
        copies = PASS_COPIES + labels.num_roots(outputs)
        graph = dtype.itemsize * copies * batch * problem.network.width
        try:
            each = _counted(problem.text, labels, batch, dtype, **chosen)
        # A module of the user's own may want numbers, and fail in any way without.
        except Exception:
            each = graph
        is_large = CPU_GRAPH_BYTES // graph <= 2
        counts.append(PassBytes(0, 2 * each) if is_large else PassBytes(each, each))
    return max(counts, default=PassBytes(), key=sum)


@lru_cache(maxsize=256)
def _counted(
    text: str, labels: Labels, batch: int, dtype: torch.dtype, **chosen: Any
) -> int:
    """Return half the peak bytes of a pass of two models, and its factors."""
    problem = read(text)
    given = meta_inputs(problem, batch, batch, dtype)
    parts = parts_of(text, chosen["kfac_approx"], separate=chosen["separate"])
    moments = [
        Moments(
            matrix.piece,
            chosen["kfac_approx"],
            batch,
            has_spread=False,
            is_joined=True,
        )
        for matrix in parts.pieces
    ]

    def roots(_: Part, outputs: Tensor) -> Tensor:
        # Of any law as many, and as large, as are sent back.
        count = labels.num_roots(outputs.shape[2])
        shape = (*outputs.shape[:2], count, *outputs.shape[2:])
        return outputs.new_empty(shape)

    of = Recorded(
        problem.network.outputs_and_uses,
        problem.network.layout.names,
        problem.network.layout.shapes,
        given["weights_MD"],
        given["fixed_MS"],
        given["inputs"],
        given["targets"],
        roots,
        batch,
        given["models_per_pass"],
        manner=parts.manner,
    )

    def compute() -> list[tuple[Tensor, Tensor]]:
        for pass_ in of.swept():
            for moment in moments:
                moment.add(pass_)
        return [moment.matrices() for moment in moments]

    held = [tensor for tensor in given.values() if isinstance(tensor, Tensor)]
    return peak_bytes(compute, given=held) // 2
