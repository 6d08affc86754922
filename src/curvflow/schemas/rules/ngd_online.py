"""Online natural gradient descent."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from pydantic import Field

from curvflow.schemas.explanations import Section
from curvflow.schemas.rules._base import Rule


class NgdOnline(Rule):
    """Steps of SGD's length, turned axis by axis by running moments of the gradient."""

    rule: Literal["ngd_online"] = "ngd_online"
    lr: float = Field(gt=0, description="learning rate")
    alpha: float = Field(
        4.0, gt=0, description="damping, multiple of the mean eigenvalue"
    )
    share: float = Field(
        0.1, gt=0, lt=1, description="weight of the newest gradient in the moments"
    )
    rank: int = Field(80, ge=1, description="most directions kept per axis")
    period: int = Field(
        4, ge=1, description="steps between updates of the moments, after the tenth"
    )
    delta: float = Field(
        5e-4, ge=0, lt=1, description="least eigenvalue as a share of the largest"
    )
    eps: float = Field(
        1e-10,
        gt=0,
        description="least eigenvalue, and trace that damping is taken from",
    )

    def scratch(
        self, shapes: Sequence[tuple[int, ...]], batch_size: int, outputs: int
    ) -> int:
        """Return what the moments of all axes hold, before and after an update."""
        sizes = [size for shape in shapes for size in shape if size > 1]
        ranks = [self.rank_of(size) for size in sizes]
        return 2 * sum(r * (d + r) for r, d in zip(ranks, sizes, strict=True))

    def rank_of(self, size: int) -> int:
        """Return the number of directions kept of an axis of some size."""
        return min((size + 1) // 2, self.rank)


RULE = NgdOnline

EXPLANATION = Section(
    group="Path-SGD and natural gradients",
    summary="turns gradients by running second moments, axis by axis",
    text="""\
w ← w − η P g, where P turns the gradient tensor G of each weight matrix, kernel or
bias, and ‖P G‖ = ‖G‖: steps are as long as those of `sgd` at the same rate. One axis
of G after the other is the columns of a matrix X, all other axes its N rows, and X
becomes X (F + α/d max(tr F, ε) I)⁻¹, scaled to the norm of X. d is the length of the
axis, α = `alpha` and ε = `eps`; an axis of length 1 is passed over. The next axis
gets what the one before it made. As α grows, P becomes 1, and the rule `sgd`.

F is a running second moment along the axis of the gradients of the steps' batches, T
= s X'X / N + (1 − s) F with s = `share`, kept as R'KR + ρ (I − R'R): r orthonormal
rows R, r = min((d + 1) / 2, `rank`) rounded down, and ρ in every other direction. It
is updated after each of the first ten steps, then after every `period`-th:

- R ← Z^(−1/2) Y and K ← Z^(1/2) with Y = R T, Z = Y Y', one step of subspace iteration,
  not the leading eigenvectors of T themselves;
- ρ ← (tr T − tr K) / (d − r), but at least δ = `delta` times the largest eigenvalue of
  K, and at least ε; eigenvalues of K below ρ are raised to ρ.

The X of the first step enters before that step: F begins as max(δ tr S, ε) I with S =
X'X / N and R as the first r cosines over the axis, and is updated three times by the
same X. X'X is that of the mean gradient of the batch, not of the samples' gradients,
so that F is neither the Fisher matrix nor the empirical one; see `ngd` for these.
""",
    source="""\
Povey, Zhang and Khudanpur (2015), arXiv:1410.7455, applied to every axis of a
tensor's gradient, as in the runs of Saghir et al. (2024), whose α are 0.01 and 0.1.
The published recursion turns R so that K is diagonal, which gives the same F. What
may differ from theirs is the first R and F, and how rounding is met.
""",
    example="""\
axes:
  rule:
    online: {rule: ngd_online, lr: 0.01, alpha: 4.0}
    sharp: {rule: ngd_online, lr: 0.01, alpha: 0.01, share: 0.1, rank: 80, period: 4,
            delta: 5.0e-4, eps: 1.0e-10}
""",
)
