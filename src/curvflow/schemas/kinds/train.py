"""Declaration of `train`."""

from __future__ import annotations

from typing import Annotated, Literal, Self

from pydantic import Field, ValidationInfo, field_validator, model_validator

from curvflow.schemas.explanations import Explanation
from curvflow.schemas.kind import Continues, Input, Kind
from curvflow.schemas.kinds.shared.networks import FanIn
from curvflow.schemas.kinds.shared.trained import OUTPUTS, PRECONDITIONER, RECORDED
from curvflow.schemas.losses import LOSS_UNITS, LossSpec
from curvflow.schemas.models import ModelSpec, model_name
from curvflow.schemas.nodes import Data, Preconditioned, Weights
from curvflow.schemas.params import Neutral, Params
from curvflow.schemas.rules import RuleSpec


class Checkpoints(Params):
    """Checkpoints that are kept with the final weights."""

    every: int = Field(ge=1, description="keep epochs 0, every, 2 every, ...")


class Until(Params):
    """Conditions on which a model's training stops before its last epoch."""

    train_loss: float = Field(
        gt=0, description="loss over all training data that is low enough"
    )


class Augmentation(Params):
    """Random changes of training inputs, in this order."""

    shift: int = Field(
        0,
        ge=0,
        description="pixels that images move along either side at most, over zeros",
    )
    flip: bool = Field(
        False, description="left and right exchanged in half of the images"
    )
    erase: int = Field(
        0,
        ge=0,
        description="side of a square around any pixel that is zero",
    )
    noise: float = Field(
        0.0,
        ge=0,
        description="standard deviation of what is added",
    )

    @property
    def takes_images(self) -> bool:
        """True if it changes images alone."""
        return bool(self.shift or self.flip or self.erase)

    @model_validator(mode="after")
    def _changes_something(self) -> Self:
        if not (self.takes_images or self.noise):
            raise ValueError(
                "expected shift, flip, erase or noise, got none of them. Give one of "
                "them, or remove augment."
            )
        return self


class TrainParams(Params):
    """A model, a learning rule, and how long and how it is trained."""

    model: ModelSpec = Field(description="the network")
    rule: RuleSpec = Field(
        description="the learning rule, or a preset of one by its name"
    )
    seed: int = Field(0, ge=0, description="seed of initial weights and data order")
    epochs: int = Field(ge=1, description="passes over the training data")
    batch_size: int | None = Field(
        None,
        ge=1,
        description="samples per step; the last batch of an epoch may be smaller and "
        "counts as a whole step; null takes all samples at once",
    )
    accumulation: Annotated[int, Neutral(1)] = Field(
        1,
        ge=1,
        description="parts of a batch that are computed in turn, for less memory; a "
        "batch norm sees one part",
    )
    drop_last: bool = Field(
        False, description="leave out the last batch of an epoch if it is smaller"
    )
    label_noise: Annotated[float, Neutral(0.0)] = Field(
        0.0,
        ge=0,
        le=1,
        description="share of training labels replaced by another class, drawn anew "
        "in each epoch; curves are those of the true labels",
    )
    augment: Annotated[Augmentation | None, Neutral(None)] = Field(
        None,
        description="changes of each batch by seed and step",
    )
    validation_fraction: float = Field(
        0.0,
        ge=0,
        lt=1,
        description="share of the training data that the seed sets apart: never "
        "trained on, measured as validation, and given to rules that watch it",
    )
    accuracy: Literal["auto", "nearest"] = Field(
        "auto",
        description="of targets -1 and 1: auto counts the right sign, nearest only "
        "outputs less than 1/2 from the target",
    )
    loss: LossSpec = Field(
        "auto",
        description="by name, with settings, or by a factory; also mse (mean over "
        "samples and outputs) and sse (sum over both); auto is cross_entropy for "
        "labels and mse for values",
    )
    dtype: Literal["float32", "float64"] = Field(
        "float32", description="precision of training; results are float64"
    )
    checkpoints: Checkpoints | None = Field(
        None, description="weights kept; the final ones always are"
    )
    keep_preconditioner: Annotated[bool, Neutral(False)] = Field(
        False,
        description="keep with the weights how the rule scales its steps, as "
        "probe.sharpness takes it",
    )
    until: Annotated[Until | None, Neutral(None)] = Field(
        None,
        description="stop each model at the first epoch that is low enough: weights "
        "and values of later epochs are then those; null trains all epochs",
    )
    diverged_above: float | None = Field(
        1e4,
        gt=1,
        description="a training loss, averaged over the batches of an epoch or at the "
        "end, of more than this multiple of its value at epoch 0 counts as divergence, "
        "as any non-finite loss or weight does; null for the latter alone",
    )
    record_every: int = Field(
        1, ge=1, description="epochs between points of the curves; 0 and last included"
    )
    record_step_norms: Annotated[bool, Neutral(False)] = Field(
        False, description="record the curve step_norm, the mean length of the steps"
    )

    @model_validator(mode="after")
    def _has_what_the_rule_watches(self) -> Self:
        if self.rule.watches and not self.validation_fraction:
            raise ValueError(
                f"expected validation_fraction above 0 with rule {self.rule.rule}, "
                "which watches the validation loss, got 0. Raise it, or take another "
                "rule."
            )
        return self

    @field_validator("accumulation")
    @classmethod
    def _has_samples_in_each_part(cls, parts: int, known: ValidationInfo) -> int:
        batch_size = known.data.get("batch_size")
        if batch_size is not None and parts > batch_size:
            raise ValueError(
                f"expected at most the {batch_size} samples of a batch, got {parts}. "
                "Lower it, or raise batch_size."
            )
        return parts

    @field_validator("epochs")
    @classmethod
    def _has_epochs_to_average(cls, epochs: int, known: ValidationInfo) -> int:
        rule = known.data.get("rule")
        if rule is not None and (start := rule.averages_from()) > epochs:
            raise ValueError(
                f"expected at least the {start} after which {rule.rule} begins to "
                f"average, got {epochs}. Raise it, or lower start of the rule."
            )
        return epochs

    @field_validator("keep_preconditioner")
    @classmethod
    def _has_a_preconditioner_to_keep(cls, keeps: bool, known: ValidationInfo) -> bool:
        rule = known.data.get("rule")
        if keeps and rule is not None and not rule.has_preconditioner:
            raise ValueError(
                f"expected a rule with a known preconditioner, got {rule.rule}. "
                "Remove it, or take another rule."
            )
        return keeps

    @model_validator(mode="after")
    def _has_units_to_unbalance(self) -> Self:
        init = self.rule.init or self.model.init
        is_unbalanced = isinstance(init, FanIn) and init.unbalanced is not None
        kind = model_name(self.model)
        if is_unbalanced and kind != "mlp":
            raise ValueError(
                f"init.unbalanced cannot be combined with a model of kind {kind}. Take "
                "an mlp, or remove unbalanced."
            )
        return self


def kept_epochs(params: TrainParams) -> tuple[int, ...]:
    """Return the epochs whose weights are kept, ascending; 0 is before training."""
    if params.checkpoints is None:
        return (params.epochs,)
    return _grid(params.checkpoints.every, params.epochs)


def recorded_epochs(params: TrainParams) -> tuple[int, ...]:
    """Return the epochs at which the curves have a point, ascending."""
    return _grid(params.record_every, params.epochs)


def _may_continue(shorter: TrainParams, longer: TrainParams) -> bool:
    # Both keep and record on one grid, so nothing that the longer shows is lacking.
    alike = longer.model_copy(update={"epochs": shorter.epochs}) == shorter
    return alike and shorter.epochs < longer.epochs and longer.rule.is_extendable


def _grid(every: int, last: int) -> tuple[int, ...]:
    return (*range(0, last, every), last)


KIND = Kind(
    name="train",
    version=2,
    summary="Train networks; all seeds and learning rules of a tile in one program.",
    params=TrainParams,
    returns=Preconditioned,
    outputs=OUTPUTS,
    accelerated=True,
    main=(
        "final_train_loss",
        "final_test_loss",
        "final_train_accuracy",
        "final_test_accuracy",
    ),
    inputs={
        "weights": Input(Weights, optional=True),
        "data": Input(Data, follows="weights", by_rows=True),
    },
    varying=("seed", "rule", "model.init"),
    checkpoints=kept_epochs,
    loads={
        "rule.module": "curvflow.tasks.rules",
        "rule.inner.module": "curvflow.tasks.rules",
        "rule.inner.inner.module": "curvflow.tasks.rules",
        "model.module": "curvflow.tasks.models",
    },
    carries=("model", "loss"),
    continues=Continues(
        "epochs",
        _may_continue,
        parts=(
            "epoch",
            *RECORDED,
            "checkpoint",
            "weights",
            "network",
            "rule_state",
            "reached_epoch",
            *PRECONDITIONER,
        ),
    ),
)

EXPLANATION = Explanation(
    formula=(
        "w ← rule(w, ∇L), L the mean loss of a batch; the formula of each rule is "
        "on the page of learning rules"
    ),
    source="that of the rule and of the model, on their pages",
    cost=(
        "epochs · one gradient over the data, under sam two (num_gradients), and at "
        "every recorded epoch the losses of all sets; rules that look at the curvature "
        "add products, as their sections tell"
    ),
    example="""\
study: example
axes:
  seed: 3
  rule: {sgd: {rule: sgd, lr: 0.1, momentum: 0.9},
         adam: {rule: adam, lr: 0.003}}
stages:
  digits: {use: data.digits}
  fit: {use: train, data: digits, model: {kind: mlp, hidden: [16]},
        rule: "${rule}", seed: "${seed}", epochs: 20, batch_size: 64}
""",
    page="study.md#stages",
    units={
        "accumulation": "part",
        "augment.shift": "pixel",
        "augment.erase": "pixel",
        "augment.noise": "as the inputs",
        "checkpoints.every": "epoch",
        "until.train_loss": "loss",
        **LOSS_UNITS,
    },
)
