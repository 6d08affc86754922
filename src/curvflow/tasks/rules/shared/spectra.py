"""Spectrum of the batch's curvature, by Lanczos."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from curvflow.tasks.networks.problems import CPU_PRODUCT_BYTES, PASS_COPIES
from curvflow.tasks.numerics.derivatives.gauss_newton import BatchedGaussNewton, Outputs
from curvflow.tasks.numerics.derivatives.hessians import BatchedHessian
from curvflow.tasks.numerics.derivatives.passes import spans
from curvflow.tasks.numerics.krylov.lanczos import lanczos
from curvflow.tasks.numerics.operators.base import BatchedOperator
from curvflow.tasks.training.cache_blocks import GPU_PASS_BYTES
from curvflow.tasks.training.step_context import Step


@dataclass(frozen=True)
class Spectrum:
    """Ritz values of M models by K Lanczos steps each, in double precision.

    Attributes:
        values: (M, K), ascending; 0 behind a breakdown.
        weights: of these in the start, of sum 1, (M, K); 0 behind a breakdown.
        vectors: unit vectors as columns, (M, D, K); 0 behind a breakdown, None if not
            requested.
        is_finite: which models have one, (M,); the numbers of others mean nothing.
    """

    values: Tensor
    weights: Tensor
    vectors: Tensor | None
    is_finite: Tensor


class _Contained:
    """An operator whose products that are not finite become zero, and are noted.

    A model that diverges must not end the training of its siblings.
    """

    def __init__(self, operator: BatchedOperator) -> None:
        self._operator = operator
        self.shape = operator.shape
        self.dtype, self.device = operator.dtype, operator.device
        self.is_finite_M = torch.ones(
            self.shape[0], dtype=torch.bool, device=self.device
        )

    def __matmul__(self, columns: Tensor) -> Tensor:
        images = self._operator @ columns
        finite_M = torch.isfinite(images).flatten(1).all(1)
        self.is_finite_M &= finite_M
        return images.masked_fill(~finite_M.view(-1, *[1] * (images.ndim - 1)), 0.0)

    def select(self, models: Tensor) -> _Contained:
        return _Contained(self._operator.select(models))


def random_signs(weights_MD: Tensor, context: Step) -> Tensor:
    """Return vectors of signs, of the shape of the weights, to start from."""
    return torch.where(context.draw((weights_MD.shape[1],)) < 0.5, -1.0, 1.0)


def spectrum(
    start_MD: Tensor,
    weights_MD: Tensor,
    context: Step,
    *,
    matrix: str,
    num_steps: int,
    vectors: bool = False,
) -> Spectrum:
    """Run Lanczos on the curvature of the loss that the step's gradient is of.

    Args:
        start_MD: what each model starts from; zero stands for any other vector.
        weights_MD: where the curvature is taken.
        context: for the network, the batch and its dropout.
        matrix: `hessian`, or `ggn`, generalised Gauss-Newton.
        num_steps: products, at most D.
        vectors: whether Ritz vectors are wanted.

    Returns:
        The spectra.
    """
    each = 8 * PASS_COPIES * context.batch.count * context.problem.network.width
    on_cpu = weights_MD.device.type == "cpu"
    most = (CPU_PRODUCT_BYTES if on_cpu else GPU_PASS_BYTES) // each
    parts = [
        _spectrum(start_MD, weights_MD, context, span, (matrix, num_steps, vectors))
        for span in spans(len(weights_MD), most)
    ]
    return Spectrum(
        torch.cat([part.values for part in parts]),
        torch.cat([part.weights for part in parts]),
        torch.cat([part.vectors for part in parts if part.vectors is not None])
        if vectors
        else None,
        torch.cat([part.is_finite for part in parts]),
    )


def _spectrum(
    start_MD: Tensor,
    weights_MD: Tensor,
    context: Step,
    span: slice,
    how: tuple[str, int, bool],
) -> Spectrum:
    matrix, num_steps, vectors = how
    start_MD, weights_MD = start_MD[span].double(), weights_MD[span]
    models = len(weights_MD)
    start_MD, finite_M = _contained(start_MD, weights_MD)
    weights_MD = torch.where(finite_M.unsqueeze(1), weights_MD, 0.0)
    if models == 1:  # no product is of a single model: see decision 0003
        start_MD, weights_MD = start_MD.repeat(2, 1), weights_MD.repeat(2, 1)
    operator = _Contained(_curvature(weights_MD, context, span, matrix))
    ritz = lanczos(
        operator, start_MD.unsqueeze(2), num_steps=num_steps, vectors=vectors
    )
    return Spectrum(
        ritz.values[:models, 0].nan_to_num(nan=0.0).to(weights_MD.device),
        ritz.weights[:models, 0].to(weights_MD.device),
        None if ritz.vectors is None else ritz.vectors[:models, 0],
        finite_M & operator.is_finite_M[:models],
    )


def _contained(start_MD: Tensor, weights_MD: Tensor) -> tuple[Tensor, Tensor]:
    """Return starts that can be taken, and which models are finite."""
    norm_M = start_MD.norm(dim=1)
    finite_M = torch.isfinite(norm_M) & torch.isfinite(weights_MD).all(1)
    usable_M1 = (finite_M & (norm_M > 0)).unsqueeze(1)
    return torch.where(usable_M1, start_MD, 1.0), finite_M


def _curvature(
    weights_MD: Tensor, context: Step, span: slice, matrix: str
) -> BatchedOperator:
    """Return the curvature of the loss that is minimised, dropout and all."""
    batch, criterion = context.batch.models(span), context.problem.criterion
    # Operators are of the mean over samples; of sse the sum is minimised.
    share = batch.count if criterion.is_sum else 1
    context.problem.network.check_derivatives()
    outputs = _training_outputs(weights_MD, context, span)

    def sample(outputs_MNC: Tensor, targets: Tensor) -> Tensor:
        return share * criterion.of_samples(outputs_MNC, targets)

    if matrix == "ggn":
        return BatchedGaussNewton(
            outputs,
            sample,
            weights_MD,
            batch.inputs,
            batch.targets,
            derivatives=context.problem.network.derivatives,
            sizes=context.problem.network.layout.sizes,
        )

    def losses(weights_MD: Tensor, inputs: Tensor, targets: Tensor) -> Tensor:
        return sample(outputs(weights_MD, inputs), targets)

    # One graph of the gradient serves all products, which are of one column each.
    return BatchedHessian(
        losses, weights_MD, batch.inputs, batch.targets, order="reverse_over_reverse"
    )


def _training_outputs(weights_MD: Tensor, context: Step, span: slice) -> Outputs:
    """Return the networks as the gradient was derived of them."""
    network = context.problem.network
    statistics_MS = context.statistics[span].to(weights_MD)
    drawn: list[Tensor] = []
    draw = context.dropout(span)

    def record(shape: tuple[int, ...]) -> Tensor:
        drawn.append(draw(shape))
        return drawn[-1]

    def outputs(weights_MD: Tensor, inputs: Tensor) -> Tensor:
        replayed = iter(drawn)
        return network.training_outputs(
            weights_MD, statistics_MS, inputs, lambda _: next(replayed)
        )[0]

    # Drawn once and for all: nothing can be drawn within a vectorised derivative.
    with torch.no_grad():
        inputs = context.batch.models(span).inputs
        network.training_outputs(weights_MD, statistics_MS, inputs, record)
    return outputs
