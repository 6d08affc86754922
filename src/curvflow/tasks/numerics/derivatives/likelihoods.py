"""Likelihoods whose negative logarithm is a loss, of outputs of any shape.

Outputs of a module are terms, each with a separate law: a label among C classes, or C
values. One table says which axes are what, and how many terms the
mean loss is taken over. Losses of values by name and sampled Fisher matrices go by it;
other losses are called as they are, and Gauss-Newton matrices take their derivatives.

Letters in addition to those of the package: T terms of a sample.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

# Losses known by name, whose outputs have the shape of the targets, or classes.
NAMES = ("cross_entropy", "mse", "sse", "bce", "poisson")

# The label that torch's cross entropy leaves out by default.
TORCH_IGNORES = -100


@dataclass(frozen=True)
class Likelihood:
    """The law of a batch's targets, given the outputs of a module.

    Attributes:
        name: of the loss of a term, one of `NAMES`.
        class_axis: of the outputs of a batch, for cross_entropy: torch has classes
            behind the samples, a loss by name has them last.
        ignore_index: a label that stands for none; None if there is no such.
        is_over_terms: whether the mean loss is over all terms that count, as torch's,
            or over samples of the mean over each one's terms.
    """

    name: str
    class_axis: int = -1
    ignore_index: int | None = None
    is_over_terms: bool = False

    def terms(self, outputs: Tensor) -> Tensor:
        """Return the outputs of a batch as terms, (N, T, C).

        Args:
            outputs: (N, ...); without another axis each is one value.
        """
        samples = len(outputs)
        if self.name == "cross_entropy":
            last = outputs.movedim(self.class_axis, -1)
            return last.reshape(samples, -1, last.shape[-1])
        return outputs.reshape(samples, 1, -1)

    def outputs(self, terms_NTC: Tensor, like: Tensor) -> Tensor:
        """Return terms in the shape of outputs; the reverse of `terms`."""
        if self.name == "cross_entropy":
            last = like.movedim(self.class_axis, -1)
            return terms_NTC.reshape(last.shape).movedim(-1, self.class_axis)
        return terms_NTC.reshape(like.shape)

    def counts(self, targets: Any, terms_NTC: Tensor) -> Tensor:
        """Return 1 of each term that has a label, and 0 of the others, (N, T).

        Args:
            targets: of the batch.
            terms_NTC: the outputs as terms.
        """
        counts_NT = torch.ones_like(terms_NTC[..., 0])
        is_labels = isinstance(targets, Tensor) and not targets.is_floating_point()
        if self.ignore_index is None or not is_labels:
            return counts_NT
        left_out_NT = targets.reshape(counts_NT.shape) == self.ignore_index
        return counts_NT.masked_fill(left_out_NT, 0.0)

    def num_terms(self, counts_NT: Tensor) -> float:
        """Return the number of terms that the mean loss of a batch is taken over."""
        return float(counts_NT.sum()) if self.is_over_terms else counts_NT.numel()


# Losses of values in torch, with their defaults.
_OF_VALUES = {
    "mse": nn.functional.mse_loss,
    "bce": nn.functional.binary_cross_entropy_with_logits,
    "poisson": nn.functional.poisson_nll_loss,
}


def likelihood_of(loss: Any) -> Likelihood | None:
    """Return the likelihood of a loss, if it is known.

    Args:
        loss: a name of `NAMES`, or a function or a module of torch.
    """
    if isinstance(loss, str):
        return Likelihood(loss) if loss in NAMES else None
    if _computes_otherwise(loss):
        return None
    if name := _name_of_values(loss):
        return Likelihood(name)
    if loss is nn.functional.cross_entropy:
        return Likelihood("cross_entropy", 1, TORCH_IGNORES, is_over_terms=True)
    if isinstance(loss, nn.CrossEntropyLoss):
        if loss.weight is not None or loss.label_smoothing:
            return None
        is_mean = loss.reduction == "mean"
        return Likelihood("cross_entropy", 1, loss.ignore_index, is_over_terms=is_mean)
    return None


def _computes_otherwise(loss: Any) -> bool:
    """Return whether a loss is derived from one of torch with another forward."""
    kinds = nn.MSELoss, nn.BCEWithLogitsLoss, nn.PoissonNLLLoss, nn.CrossEntropyLoss
    return any(
        isinstance(loss, kind) and type(loss).forward is not kind.forward
        for kind in kinds
    )


def _name_of_values(loss: Any) -> str | None:
    """Return the name of a loss of values in torch, if it is known."""
    match loss:
        case nn.MSELoss():
            return "mse"
        case nn.BCEWithLogitsLoss(weight=None, pos_weight=None):
            return "bce"
        case nn.PoissonNLLLoss(log_input=True, full=False):
            return "poisson"
    names = (name for name, function in _OF_VALUES.items() if loss is function)
    return next(names, None)
