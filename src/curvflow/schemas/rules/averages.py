"""Averages of the weights that another rule steps through."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal

from pydantic import Field, PositiveInt

from curvflow.schemas.explanations import Section
from curvflow.schemas.params import Params
from curvflow.schemas.rules._base import Rule
from curvflow.schemas.rules.adaptive.adamw import Adaptive
from curvflow.schemas.rules.adaptive.padam import PartiallyAdaptive
from curvflow.schemas.rules.sgd import Sgd
from curvflow.schemas.rules.spectral_sgd import SpectralSgd

Every = Annotated[
    Literal["epoch"] | PositiveInt,
    Field(
        description="which weights are averaged: those at the end of each epoch, or "
        "after each so many steps, counted from the first of training"
    ),
]


class Slow(Params):
    """Lookahead before the averaging begins."""

    k: int = Field(5, ge=1, description="steps between two moves of the slow weights")
    alpha: float = Field(
        0.5, gt=0, le=1, description="share of the way to the fast weights"
    )


class Averaging(Rule):
    """Base of rules whose result is an average of the weights they step through."""

    not_inside: ClassVar[bool] = True

    start: int = Field(
        ge=0, description="epochs completed when the first weights are averaged"
    )
    every: Every = "epoch"
    count_before: bool = Field(
        False, description="count the last weights before averaging begins as one more"
    )
    lookahead: Slow | None = Field(
        None, description="Lookahead until averaging begins; null for none"
    )

    @property
    def has_preconditioner(self) -> bool:
        """False: the weights that are kept are not those that steps are taken from."""
        return False

    def averages_from(self) -> int:
        """Return the start of the average."""
        return self.start


class Swa(Averaging, Sgd):
    """Gradient descent whose result is the average of its weights."""

    rule: Literal["swa"] = "swa"  # type: ignore[assignment] # a name of its own


class Gadam(Averaging, Adaptive):
    """AdamW whose result is the average of its weights."""

    rule: Literal["gadam"] = "gadam"


class GadamX(Averaging, PartiallyAdaptive):
    """Partially adaptive AdamW whose result is the average of its weights."""

    rule: Literal["gadamx"] = "gadamx"


class GadamAuto(Adaptive):
    """AdamW, then its average, then an end, as the validation loss stops improving."""

    not_inside: ClassVar[bool] = True

    rule: Literal["gadam_auto"] = "gadam_auto"
    patience: int = Field(
        10,
        ge=1,
        description="epochs without a lower validation loss before averaging begins, "
        "and again before it ends",
    )
    every: Every = "epoch"
    count_before: bool = Field(
        False, description="count the last weights before averaging begins as one more"
    )

    @property
    def watches(self) -> bool:
        """True: it is given the validation loss after each epoch."""
        return True

    @property
    def has_preconditioner(self) -> bool:
        """False: the weights that are kept are not those that steps are taken from."""
        return False


class SpectralSwa(Averaging, SpectralSgd):
    """Spectral gradient descent whose result is the average of its weights."""

    rule: Literal["spectral_swa"] = "spectral_swa"  # type: ignore[assignment] # its own


RULES = (Swa, Gadam, GadamX, GadamAuto, SpectralSwa)

EXPLANATIONS = (
    Section(
        group="Averages of weights",
        summary="averages the weights of `sgd`",
        text="""\
w ← w − η v as in `sgd`, with its `momentum`, `nesterov` and `weight_decay`; the
result is the mean of the w that are due by `start`, `every` and `count_before`, with
`lookahead` if it is given.
""",
        source="""\
Izmailov et al. (2018), arXiv:1803.05407.
""",
        example="""\
axes:
  rule:
    swa: {rule: swa, lr: 0.05, momentum: 0.9, start: 3}
    often: {rule: swa, lr: 0.05, start: 2, every: 10}
""",
    ),
    Section(
        group="Averages of weights",
        summary="averages those of `adamw`",
        text="""\
w ← (1 − η λ) w − η m̂ / (√v̂ + ε) as in `adamw`, with its `beta1`, `beta2`, `eps`,
`amsgrad` and decoupled `weight_decay`; the result is the mean of the w that are due
by `start`, `every` and `count_before`, with `lookahead` if it is given.
""",
        source="""\
Granziol (2020), Algorithm 9 with p = ½. Bias is corrected outside the recursion,
and the average begins at step T_avg; both are printed otherwise.
""",
        example="""\
axes:
  rule:
    gadam: {rule: gadam, lr: 0.001, weight_decay: 0.1, start: 3}
    printed: {rule: gadam, lr: 0.001, start: 3, every: 1, count_before: true}
    ahead: {rule: gadam, lr: 0.001, start: 3, lookahead: {k: 5, alpha: 0.5}}
""",
    ),
    Section(
        group="Averages of weights",
        summary="averages those of `padam`",
        text="""\
w ← (1 − η λ) w − η m̂ / (√v̂ + ε)²ᵖ as in a decoupled `padam`, with its `p`,
`eps_at`, `beta1`, `beta2`, `eps` and `weight_decay`, and `amsgrad` off unless turned
on; the result is the mean of the w that are due by `start`, `every` and
`count_before`, with `lookahead` if it is given. `eps_at: inside` is as printed,
(v̂ + ε)ᵖ.
""",
        source="""\
Granziol (2020), Algorithm 9, with p = 1/8 for images and 1/5 for a language model.
""",
        example="""\
axes:
  rule:
    gadamx: {rule: gadamx, lr: 0.1, weight_decay: 0.003, start: 3}
    printed: {rule: gadamx, lr: 0.1, p: 0.2, eps_at: inside, start: 3,
              count_before: true}
""",
    ),
    Section(
        group="Averages of weights",
        summary="averages those of `adamw` once validation no longer improves",
        text="""\
w ← (1 − η λ) w − η m̂ / (√v̂ + ε) as in `adamw`, with its `beta1`, `beta2`, `eps`,
`amsgrad` and `weight_decay`, at a flat rate. After each epoch the validation loss of
the result is compared with the lowest so far. After `patience` epochs without a lower
one the average begins, with `every` and `count_before` as above; after `patience`
more it ends. A model that has ended stays as it is while its siblings train on:
neither its weights nor its average nor its means change, and its `update_norm` is 0.
The last two numbers of its `rule_state` before the present weights are the epochs
completed when the average began and when it ended, −1 where it has not.

Its study sets samples apart to watch: `validation_fraction` of the `train` stage.
""",
        source="""\
Granziol (2020), section 7, GadamAuto, with a patience of 10.
""",
        example="""\
axes:
  rule:
    auto: {rule: gadam_auto, lr: 0.001, patience: 2}
stages:
  fit: {use: train, data: data, model: {kind: mlp, hidden: [16]}, rule: "${rule}",
        seed: "${seed}", epochs: 10, batch_size: 64, validation_fraction: 0.1}
""",
    ),
    Section(
        group="Rules that look at the spectrum",
        summary="averages the weights of `spectral_sgd`",
        text="""\
w ← as under `spectral_sgd`, with its `momentum`, `first_refresh`, `refresh_every`,
`num_steps`, `matrix`, `bulk_above`, `max_momentum` and `weight_decay`. The result is
the average of the weights from `start` on, taken as under [`swa`](#swa) with its
`every`, `count_before` and `lookahead`.
""",
        source="""\
Granziol (2020), section 4.3.2: 180 epochs, refreshed every 20, averaged from 161.
""",
        example="""\
axes:
  rule:
    averaged: {rule: spectral_swa, momentum: nesterov, refresh_every: 2, start: 4}
""",
    ),
)
