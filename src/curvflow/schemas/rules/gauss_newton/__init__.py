"""Steps by the Gauss-Newton matrix of the batch, solved by conjugate gradients."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import prod
from typing import Literal

from pydantic import Field

from curvflow.schemas.explanations import Section
from curvflow.schemas.idle_settings import Idle, idle_setting
from curvflow.schemas.rules.kfac._quadratic import QuadraticRule

# Settings of the factors that it may have.
_OF_FACTORS = (
    "fisher_type", "mc_samples", "kfac_approx", "separate_weight_and_bias", "inverse",
    "pi", "preconditioner_damping", "factor_decay", "factor_update_steps",
    "inv_update_steps",
)  # fmt: skip


class GaussNewton(QuadraticRule):
    """Steps by the exact Gauss-Newton matrix of the batch, by conjugate gradients."""

    rule: Literal["gauss_newton"] = "gauss_newton"
    matrix: Literal["whole", "layers"] = Field(
        "whole", description="all of the matrix, or the diagonal blocks of its layers"
    )
    preconditioner: Literal["none", "kron"] = Field(
        "none", description="of conjugate gradients: none, or the factors of kfac"
    )
    cg_steps: int = Field(
        100, ge=1, description="most steps of conjugate gradients, a product each"
    )
    cg_tolerance: float = Field(
        1e-3,
        gt=0,
        lt=1,
        description="residual at which a network stops, relative to its gradient",
    )
    warm_start: float = Field(
        0.0,
        ge=0,
        le=1,
        description="multiple of the last solution that conjugate gradients begin "
        "with; 0 begins with none",
    )

    def idle_settings(self) -> Iterator[Idle]:
        """Yield those of all such rules, and what factors have where there are none."""
        yield from super().idle_settings()
        if self.preconditioner == "none":
            for name in _OF_FACTORS:
                cause = "preconditioner none, which has no factors"
                yield idle_setting(self, name, cause, "preconditioner kron")

    @property
    def records(self) -> tuple[str, ...]:
        """Those of the model, and how well its matrix was solved."""
        return (*super().records, "cg_iterations", "cg_residual")

    def scratch(
        self, shapes: Sequence[tuple[int, ...]], batch_size: int, outputs: int
    ) -> int:
        """Return what the search holds, what products keep, and what factors do."""
        size = sum(map(prod, shapes))
        layers = [shape for shape in shapes if len(shape) > 1]
        columns = len(layers) if self.matrix == "layers" else 1
        rows = batch_size * sum(shape[0] for shape in layers)
        factors = 0
        if self.preconditioner != "none":
            factors = super().scratch(shapes, batch_size, outputs)
        return columns * (7 * size + 3 * rows) + factors


RULE = GaussNewton

EXPLANATION = Section(
    group="Rules by Kronecker factors",
    summary="solves with the batch's Gauss-Newton matrix by conjugate gradients",
    text="""\
w ← w + α d + μ v, where d solves (G + λ + τ) d = −(g + λ w) for the loss plus λ |w|²
/ 2, λ = `l2`, τ = `damping`, and v is the step before. G is the Gauss-Newton matrix of
the step's batch, exact, with its dropout and the statistics of its batch norms; a
product takes about two gradients. All networks are solved together, and each stops by
itself: where its residual is `cg_tolerance` of its gradient, after `cg_steps` products,
or where a direction of the search has no positive curvature; of the first direction,
that is the step. `matrix: layers` leaves of G the diagonal blocks of the layers, each
with a residual of its own, for as many products as there are layers.

`preconditioner: kron` multiplies residuals by (P + λ + ζ)⁻¹, P the Kronecker factors of
the Fisher matrix that `kfac` steps by, with the same settings from `fisher_type` to
`inv_update_steps`, and ζ = `preconditioner_damping`. It changes how many products are
taken, and not the solution. `warm_start` times the last solution is where the search
begins (Martens has 1, and 0.95 later); residuals remain relative to the gradient.

α and μ, the change of τ by the reduction ratio, `kl_clip` and `reject` are those of
[`kfac`](#kfac). Without momentum a solved direction has α = 1. A loss of one's own is
taken as well, but with factors only those with a likelihood by name; where its Hessian
by the outputs is indefinite, the search ends at directions of negative curvature, or of
`gaussian` and `mixture_bernoulli` is made definite by `psd`.

Beside the curves of `kfac`, `cg_iterations` and `cg_residual` tell of the epoch's last
step how many products were taken, and the residual that was left; of layers, those of
the worst. `lr` is α.
""",
    source="""\
Martens (2010), Deep learning via Hessian-free optimization, ICML, for products,
preconditioned conjugate gradients from the last solution and the change of damping; the
end of the search is by the residual, not by progress of the model. Botev (2020),
section 4.2.2, for the directions of whole matrix and blocks.
""",
    example="""\
axes:
  rule:
    whole: {rule: gauss_newton, damping: 0.1, cg_steps: 50}
    layers: {rule: gauss_newton, damping: 0.1, matrix: layers}
    factors: {rule: gauss_newton, damping: 0.1, preconditioner: kron,
              fisher_type: type-2, inverse: exact, warm_start: 0.95}
""",
)
