"""Natural gradient descent."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Literal

from pydantic import Field

from curvflow.schemas.explanations import Section
from curvflow.schemas.rules._base import Rule


class Ngd(Rule):
    """Steps by the inverse of the damped Fisher matrix of the batch, solved exactly."""

    rule: Literal["ngd"] = "ngd"
    lr: float = Field(gt=0, description="learning rate")
    alpha: float = Field(
        1.0, gt=0, description="damping, multiple of the mean eigenvalue"
    )
    eps: float = Field(
        1e-10, gt=0, description="least trace that damping is taken from"
    )
    fisher: Literal["sampled", "empirical", "exact"] = Field(
        "sampled",
        description="labels drawn from the model, those of the data, or all of them by "
        "their probability",
    )
    num_samples: int = Field(
        1, ge=1, description="labels drawn for each input if sampled"
    )
    fisher_batch: int | None = Field(
        None,
        ge=1,
        description="samples of the batch that F is built from; null for all",
    )
    norm_match: bool = Field(
        False, description="give the step's direction the length of the gradient"
    )

    def scratch(
        self, shapes: Sequence[tuple[int, ...]], batch_size: int, outputs: int
    ) -> int:
        """Return what the rows of F, and copies of weights to derive them by, hold."""
        samples = min(self.fisher_batch or batch_size, batch_size)
        rows = {"sampled": self.num_samples, "empirical": 1, "exact": outputs}
        return samples * (rows[self.fisher] + 2) * sum(map(prod, shapes))


RULE = Ngd

EXPLANATION = Section(
    group="Path-SGD and natural gradients",
    summary="inverts the Fisher matrix of the batch",
    text="""\
w ← w − η (F + κI)⁻¹ g, κ = α / D max(tr F, ε), for D parameters, with α = `alpha` and
ε = `eps`. F is the Fisher matrix of the step's batch for the loss that is minimised:
the mean over the samples of J'SJ, or the sum of them where the loss is the sum `sse`.
J is the Jacobian of a sample's outputs, C of them, and S says how the loss is curved
in the outputs: diag(p) − pp' for `cross_entropy` with the probabilities p of the
softmax, 2/C I for `mse`, and 2 I for `sse`, whose likelihoods are Gaussian of
variance C/2 and 1/2; other [laws](how-to/own-loss.md#laws-and-their-fisher-matrices)
are taken as well. So F is the Gauss-Newton matrix of the loss, but of `gaussian` and
`mixture_bernoulli`, and a linear regression is solved in one step of η = 1 as α goes
to 0.

`fisher` says which labels F is made of: `exact` weights every class by its
probability; `sampled` draws `num_samples` labels (or values) for each input from the
model, which estimates the exact matrix without bias; `empirical` takes the labels of
the data, which estimates something else. F is built from the whole batch or from
`fisher_batch` of its samples, drawn without replacement. With `norm_match` the
direction is given the length of g, so that steps are as long as those of `sgd`.

F spans few directions, and what of g lies outside them is divided by κ alone. The
whole batch's `exact` and `empirical` matrices span g, unless there is dropout, and
take any α; with `sampled` labels, a `fisher_batch`, or dropout, α below 1 makes steps
long and random.

F is never formed. Its rows, one for each sample and draw or class, give the solution
by Woodbury's identity, in double precision. A step holds 8 bytes for each of rows
times parameters of two models at least, and costs rows² · parameters: for large models
use `sampled` or a `fisher_batch`. The rows are taken without dropout, and a model with
batch norm, whose samples meet, is refused.
""",
    source="""\
Amari (1998); the damping is that of Povey, Zhang and Khudanpur (2015), as Saghir
et al. (2024), eq. 7, write it for the whole matrix. As α grows, steps become those of
`sgd` with the rate η/κ, and with `norm_match` those of `sgd`.
""",
    example="""\
axes:
  rule:
    natural: {rule: ngd, lr: 0.01, alpha: 4.0, fisher: sampled, num_samples: 2}
    exact: {rule: ngd, lr: 0.1, alpha: 0.1, fisher: exact, eps: 1.0e-10}
    turned: {rule: ngd, lr: 0.1, fisher: empirical, fisher_batch: 16, norm_match: true}
""",
)
