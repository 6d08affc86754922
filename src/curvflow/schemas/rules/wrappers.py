"""Rules around another rule: slow weights that follow it, and gradients near w."""

from __future__ import annotations

import operator
from functools import reduce
from typing import TYPE_CHECKING, Annotated, ClassVar, Literal

from pydantic import Field, field_validator

from curvflow.schemas.explanations import Section
from curvflow.schemas.rules._base import OF_TRAINING, Rule
from curvflow.schemas.rules._files import specifications

if TYPE_CHECKING:
    Inner = Rule
else:
    _OTHERS = specifications(but=["wrappers"]).values()
    _ANY = reduce(operator.or_, (rule for rule in _OTHERS if not rule.not_inside))
    Inner = Annotated[_ANY, Field(discriminator="rule")]


class Around(Rule):
    """Base of the rules that leave the steps themselves to another."""

    inner: Inner = Field(description="the rule that steps")

    @property
    def innermost(self) -> Rule:
        """The rule that steps, within whatever is around it."""
        return self.inner.innermost

    @property
    def base_lr(self) -> float:
        """The learning rate of the inner rule before any schedule."""
        return self.inner.base_lr

    @property
    def gradients_per_step(self) -> int:
        """Gradients of a step's batch that the inner rule takes."""
        return self.inner.gradients_per_step

    def product_from(self) -> int | None:
        """Return the epoch from which the inner rule needs H w, if ever."""
        return self.inner.product_from()

    @field_validator("inner")
    @classmethod
    def _leaves_training_to_the_outer(cls, inner: Inner) -> Inner:
        outer = cls.model_fields["rule"].default
        for name in OF_TRAINING:
            if getattr(inner, name) is not None:
                raise ValueError(
                    f"{name} cannot be combined with inner. Move it to {outer} itself."
                )
        return inner


class Sam(Around):
    """Steps of another rule by the gradient where the loss is highest nearby."""

    rule: Literal["sam"] = "sam"
    rho: float = Field(
        0.05, ge=0, description="distance from w at which the gradient is taken"
    )
    adaptive: bool = Field(
        False, description="measure the distance in multiples of each weight, as ASAM"
    )
    eta: float = Field(
        0.01, ge=0, description="added to the size of each weight if adaptive"
    )

    @property
    def gradients_per_step(self) -> int:
        """One more than the inner rule takes."""
        return 1 + self.inner.gradients_per_step


if TYPE_CHECKING:
    InnerOrSam = Rule
else:
    InnerOrSam = Annotated[_ANY | Sam, Field(discriminator="rule")]


class Lookahead(Around):
    """Slow weights that follow another rule, and set it back."""

    not_inside: ClassVar[bool] = True

    rule: Literal["lookahead"] = "lookahead"
    inner: InnerOrSam = Field(description="the rule that steps between two moves")
    k: int = Field(5, ge=1, description="steps between two moves of the slow weights")
    alpha: float = Field(
        0.5, gt=0, le=1, description="share of the way to the fast weights"
    )


class Ema(Around):
    """Steps of another rule, whose result is a fading mean of its weights."""

    not_inside: ClassVar[bool] = True

    rule: Literal["ema"] = "ema"
    inner: InnerOrSam = Field(description="the rule that steps")
    decay: float = Field(0.999, ge=0, lt=1, description="decay of the mean, by step")


RULES = (Ema, Lookahead, Sam)

EXPLANATIONS = (
    Section(
        group="Averages of weights",
        summary="lets the mean of another rule's weights fade",
        text="""\
w ← the step of the rule `inner`; after each, e ← d e + (1 − d) w, with d = `decay` and
e = w after the first. The result is e. `inner`, `init`, `schedule` and presets are as
under [`lookahead`](#lookahead), and `inner` may be [`sam`](#sam).
""",
        source="""\
Polyak and Juditsky (1992), doi:10.1137/0330046, for averages; the form is that of
`get_ema_multi_avg_fn` of `torch.optim.swa_utils`, PyTorch 2.
""",
        example="""\
axes:
  rule:
    ema: {rule: ema, inner: {rule: adamw, lr: 0.003}, decay: 0.99}
    long: {rule: ema, inner: {rule: sgd, lr: 0.1, momentum: 0.9}}
""",
    ),
    Section(
        group="Averages of weights",
        summary="lets slow weights follow those of another rule",
        text="""\
s ← s + α (w − s), w ← s after every `k` steps of the rule `inner`, with α = `alpha`;
the result is s. `inner` is any rule but `torch_optimizer`, `spectral_sgd`,
`spectral_swa`, `kfac`, `gauss_newton` and those of this section, with all its
hyper-parameters, and keeps its state when w is set back; H w is taken at w. `init` and
`schedule` stand next to `inner`; a schedule multiplies the learning rate within. A
preset, which brings an `init`, is not taken there.
""",
        source="""\
Zhang et al. (2019), arXiv:1907.08610.
""",
        example="""\
axes:
  rule:
    sgd: {rule: lookahead, inner: {rule: sgd, lr: 0.1}, k: 5, alpha: 0.5}
    adam: {rule: lookahead, inner: {rule: adam, lr: 0.001}}
    metric: {rule: lookahead, inner: {rule: metric, lr: 0.1, rate: 0.0001}}
""",
    ),
    Section(
        group="Sharpness-aware rules",
        summary="steps as another rule does, by the gradient at the worst place nearby",
        text="""\
w ← the step of the rule `inner` from w, by the gradient at w + ε instead of g, with
ε = ρ g / |g| and ρ = `rho`. With `adaptive`, ε = ρ T² g / |T g|, where T multiplies
each entry by |w| + `eta`: distances are then relative to the weights, and the same
for networks that differ only in the scale of their layers; a larger ρ fits, 0.5 in
the source. T covers all parameters, biases too, which the authors' code leaves as they
are. Where g is 0, so is ε.

Both gradients are of the same batch with the same dropout. A batch norm normalises by
the batch in both, and its running statistics move once, at w. A step is that of two
gradients, and `num_gradients` counts both. Decay, H w and the curvature that `inner`
may look at are those at w. `inner` is any rule but `torch_optimizer`, `spectral_sgd`,
`kfac` and `gauss_newton`, which choose their rates, `sam` itself, and those whose
result is not the weights they step from; `init`, `schedule` and presets as under
[`lookahead`](#lookahead), within which `sam` may stand.
""",
        source="""\
Foret, Kleiner, Mobahi and Neyshabur (2021), arXiv:2010.01412, eq. 2 with p = 2; Kwon,
Kim, Park and Choi (2021), arXiv:2102.11600, ASAM, entry by entry.
""",
        example="""\
axes:
  rule:
    sam: {rule: sam, inner: {rule: sgd, lr: 0.1, momentum: 0.9}, rho: 0.05}
    asam: {rule: sam, inner: {rule: adamw, lr: 0.001}, rho: 0.5, adaptive: true}
""",
    ),
)
