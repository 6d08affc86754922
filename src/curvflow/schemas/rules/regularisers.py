"""Gradient descent with a regulariser at a separate rate."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from curvflow.schemas.explanations import Section
from curvflow.schemas.rules._base import Rule


class Decay(Rule):
    """Base of the rules that take decay_factor * rate * w off the weights.

    Unlike a weight decay within the gradient, the rate is not multiplied by `lr`.
    """

    lr: float = Field(gt=0, description="learning rate, of the gradient alone")
    rate: float = Field(ge=0, description="rate of the decay, by itself")
    decay_factor: float = Field(
        2.0,
        gt=0,
        description="factor on the rate: 2 is the gradient of rate * |w|^2, 1 that of "
        "half of it",
    )


class Selection(Decay):
    """Base of the rules that decay a parameter by the size of its entry of H w.

    The entry is compared with omega times the largest of its parameter tensor.
    """

    omega: float = Field(
        ge=0, description="share of the largest entry of H w that sets the bound"
    )
    maximum: Literal["signed", "absolute"] = Field(
        "signed",
        description="the largest entry itself, or the largest magnitude; where the "
        "first is below 0, no entry is within the bound",
    )
    at_equality: Literal["regularised", "protected"] = Field(
        "regularised", description="what happens to an entry equal to the bound"
    )
    mask: Literal["insignificant", "inverted"] = Field(
        "insignificant",
        description="which entries decay: those within the bound, or those beyond",
    )


class Metric(Rule):
    """Gradient descent with a regulariser that follows the curvature, H w."""

    rule: Literal["metric"] = "metric"
    lr: float = Field(gt=0, description="learning rate, of the gradient alone")
    rate: float = Field(ge=0, description="rate of the regulariser, by itself")
    form: Literal["abs_sign", "abs", "raw"] = Field(
        "abs_sign", description="the regulariser: |H w| sign(w), |H w| or H w itself"
    )

    def product_from(self) -> int:
        """Return 0: every step needs H w."""
        return 0


class L2(Decay):
    """Gradient descent with a decay of all weights, apart from the learning rate."""

    rule: Literal["l2"] = "l2"


class SelectiveL2(Selection):
    """Gradient descent with a decay of the parameters whose entry of H w is small."""

    rule: Literal["selective_l2"] = "selective_l2"

    def product_from(self) -> int:
        """Return 0: every step needs H w."""
        return 0


class L2Stopped(Decay):
    """`l2` for the first epochs, then gradient descent alone."""

    rule: Literal["l2_stopped"] = "l2_stopped"
    tau: int = Field(ge=0, description="epochs with decay")


class L2StoppedSelective(Selection):
    """`l2` for the first epochs, then `selective_l2`."""

    rule: Literal["l2_stopped_selective"] = "l2_stopped_selective"
    tau: int = Field(ge=0, description="epochs in which all weights decay")
    selective_rate: float = Field(
        ge=0, description="rate of the selective decay after these epochs, by itself"
    )

    def product_from(self) -> int:
        """Return tau: the epochs before decay all weights alike."""
        return self.tau


RULES = (Metric, L2, SelectiveL2, L2Stopped, L2StoppedSelective)

EXPLANATIONS = (
    Section(
        group="Regularisers that look at the curvature",
        summary="regularises by the Hessian's product with the weights",
        text="""\
w ← w − η g − λ |H w| sign(w), with λ = `rate`. `form: abs` leaves the sign out, and
`form: raw` takes H w as it is; with `raw`, a linear regression ends at η / (η + λ)
times the solution of least squares, shrunk alike in all directions. With `abs_sign`,
the default, the regulariser by itself lets no |w| grow while λ |H w| ≤ 2 |w|.
""",
        source="""\
Jarvis (2021), Table 4.1, rows 3 and 4, where it is printed as `raw`; its reported
numbers are reached with `abs_sign`.
""",
        example="""\
axes:
  rule:
    metric: {rule: metric, lr: 0.1, rate: 0.0001}
    raw: {rule: metric, lr: 0.1, rate: 0.0001, form: raw}
""",
    ),
    Section(
        group="Regularisers that look at the curvature",
        summary="lets all weights decay, at a rate of its own",
        text="""\
w ← w − η g − c λ w, with λ = `rate` and c = `decay_factor`.
""",
        source="""\
Jarvis (2021), Table 4.1, row 5.
""",
        example="""\
axes:
  rule:
    l2: {rule: l2, lr: 0.1, rate: 0.0001}
    half: {rule: l2, lr: 0.1, rate: 0.0001, decay_factor: 1.0}
""",
    ),
    Section(
        group="Regularisers that look at the curvature",
        summary="lets those decay that matter least to the loss",
        text="""\
w ← w − η g − c λ m w, with λ = `rate` and c = `decay_factor`. The mask m is 1 for an
entry with |H w| ≤ ω max(H w), ω being `omega` and the maximum taken over the
parameter tensor that holds it, weights and biases of a layer apart; it is 0 for all
others. So the weights decay that matter least to the loss.

- `maximum` is `signed`, of H w itself: a tensor without a positive entry does not
  decay, apart from entries of exactly 0 where the maximum is 0; or `absolute`, of
  magnitudes.
- `at_equality` is `regularised`: an entry equal to the bound decays, and so does a
  tensor of which all H w is 0; or `protected`.
- `mask` is `insignificant`, entries within the bound decay, or `inverted`, those
  beyond.
""",
        source="""\
Jarvis (2021), Table 4.1, row 6, which protects at equality.
""",
        example="""\
axes:
  rule:
    selective: {rule: selective_l2, lr: 0.1, rate: 0.001, omega: 0.01}
    magnitudes: {rule: selective_l2, lr: 0.1, rate: 0.001, omega: 0.01,
                 maximum: absolute, at_equality: protected, mask: insignificant}
""",
    ),
    Section(
        group="Regularisers that look at the curvature",
        summary="lets all decay in the first epochs",
        text="""\
w ← w − η g − c λ w in the first τ epochs, w ← w − η g from then on, with λ = `rate`,
c = `decay_factor` and τ = `tau`.
""",
        source="""\
Jarvis (2021), Table 4.1, row 7.
""",
        example="""\
axes:
  rule:
    stopped: {rule: l2_stopped, lr: 0.1, rate: 0.001, tau: 3}
    half: {rule: l2_stopped, lr: 0.1, rate: 0.001, tau: 3, decay_factor: 1.0}
""",
    ),
    Section(
        group="Regularisers that look at the curvature",
        summary="lets all decay first, later those that matter least",
        text="""\
w ← w − η g − c λ w in the first τ epochs, w ← w − η g − c λₛ m w from then on, with λ
= `rate`, λₛ = `selective_rate`, c = `decay_factor` and τ = `tau`. The mask m and its
settings `omega`, `maximum`, `at_equality` and `mask` are those of `selective_l2`. H w
is computed from epoch τ on.
""",
        source="""\
Jarvis (2021), Table 4.1, row 8, which leaves the epoch after τ epochs undefined.
""",
        example="""\
axes:
  rule:
    both: {rule: l2_stopped_selective, lr: 0.1, rate: 0.001, selective_rate: 0.01,
           omega: 0.01, tau: 3}
""",
    ),
)
