"""Declaration of `train`."""

from __future__ import annotations

from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from curvflow.schemas.initial import FanIn
from curvflow.schemas.kind import Continues, Input, Kind
from curvflow.schemas.models import ModelSpec, model_name
from curvflow.schemas.nodes import Data, Preconditioned
from curvflow.schemas.params import Neutral, Params
from curvflow.schemas.rules import RuleSpec
from curvflow.schemas.variables import Variable

Loss = Literal["auto", "cross_entropy", "mse", "sse"]

# The curves, by name.
CURVES = (
    "train_loss",
    "validation_loss",
    "test_loss",
    "train_accuracy",
    "validation_accuracy",
    "test_accuracy",
    "norm_l2",
    "norm_l1",
    "norm_max_unit",
    "sum_of_norms",
    "path_norm",
    "update_norm",
    "lr",
)

# Beside them that of rules which choose it.
RECORDED = (*CURVES, "chosen_momentum")

# What is kept of a rule's preconditioner.
PRECONDITIONER = ("preconditioner", "preconditioned_lr", "stable_up_to")

# Those whose last value tables hold as well, as `final_...`.
FINAL = (*CURVES[:7], "path_norm")


class Checkpoints(Params):
    """Which weights are kept beside the final ones."""

    every: int = Field(ge=1, description="keep epochs 0, every, 2 every, ...")


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
    drop_last: bool = Field(
        False, description="leave out the last batch of an epoch if it is smaller"
    )
    validation_fraction: float = Field(
        0.0,
        ge=0,
        lt=1,
        description="share of the training data that the seed sets apart: never "
        "trained on, measured as validation, and told to rules that heed it",
    )
    accuracy: Literal["auto", "nearest"] = Field(
        "auto",
        description="of targets -1 and 1: auto counts the right sign, nearest only "
        "outputs less than 1/2 from the target",
    )
    loss: Loss = Field(
        "auto",
        description="cross_entropy (mean), mse (mean over samples and outputs), sse "
        "(sum over both); auto is cross_entropy for labels and mse for values",
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

    @model_validator(mode="after")
    def _has_what_the_rule_watches(self) -> Self:
        if self.rule.watches and not self.validation_fraction:
            raise ValueError(
                f"expected validation_fraction above 0 with rule {self.rule.rule}, "
                "which is told the validation loss, got 0"
            )
        return self

    @model_validator(mode="after")
    def _has_a_preconditioner_to_keep(self) -> Self:
        if self.keep_preconditioner and not self.rule.has_preconditioner:
            raise ValueError(
                "expected a rule with a diagonal preconditioner for "
                f"keep_preconditioner, got {self.rule.rule}"
            )
        return self

    @model_validator(mode="after")
    def _has_units_to_unbalance(self) -> Self:
        init = self.rule.init or self.model.init
        is_unbalanced = isinstance(init, FanIn) and init.unbalanced is not None
        kind = model_name(self.model)
        if is_unbalanced and kind != "mlp":
            raise ValueError(
                f"expected a model of kind mlp with init.unbalanced, got {kind}"
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


def _curve(name: str, description: str, units: str = "1") -> Variable:
    return Variable(name, description, ("epoch",), units=units, series=True)


KIND = Kind(
    name="train",
    version=2,
    summary="Train networks; all seeds and learning rules of a tile in one program.",
    params=TrainParams,
    returns=Preconditioned,
    outputs=(
        Variable(
            "epoch",
            "epochs completed; 0 is before training",
            ("epoch",),
            dtype="int64",
            units="epoch",
            series=True,
        ),
        _curve("train_loss", "loss over all training data", "loss"),
        _curve("validation_loss", "loss over what is set apart; NaN if none", "loss"),
        _curve("test_loss", "loss over all test data; NaN without any", "loss"),
        _curve("train_accuracy", "share of training samples classified rightly"),
        _curve("validation_accuracy", "the same share of what is set apart"),
        _curve("test_accuracy", "share of test samples classified rightly"),
        _curve("norm_l2", "Euclidean norm of all parameters", "parameter"),
        _curve("norm_l1", "sum of the magnitudes of all parameters", "parameter"),
        _curve(
            "norm_max_unit",
            "largest Euclidean norm of the weights that come into a unit, mu_{2,inf} "
            "of Neyshabur, Tomioka and Srebro (2015)",
            "parameter",
        ),
        _curve("sum_of_norms", "as norm_tensor_sum, along training", "parameter"),
        _curve(
            "path_norm",
            "root of the sum over paths from an input or a bias to an output of the "
            "squared product of their weights; NaN for models that have no such paths",
        ),
        _curve(
            "update_norm",
            "Euclidean norm of the change over the last epoch; 0 at epoch 0",
            "parameter",
        ),
        _curve("lr", "learning rate of the epoch that ends here"),
        Variable(
            "chosen_momentum",
            "momentum of the epoch that ends here, of rules that choose it",
            ("epoch",),
            series=True,
            optional=True,
        ),
        Variable("final_train_loss", "training loss at the end", units="loss"),
        Variable("final_validation_loss", "validation loss at the end", units="loss"),
        Variable("final_test_loss", "test loss at the end", units="loss"),
        Variable(
            "final_train_accuracy",
            "training accuracy at the end; by sign for targets -1 and 1, NaN for "
            "other regression",
        ),
        Variable("final_validation_accuracy", "validation accuracy at the end"),
        Variable("final_test_accuracy", "test accuracy at the end, like the training"),
        Variable(
            "final_norm_l2", "Euclidean norm of the final weights", units="parameter"
        ),
        Variable("final_path_norm", "path norm of the final weights"),
        Variable(
            "norm_tensor_sum",
            "sum of the Frobenius norms of the final parameter tensors",
            units="parameter",
        ),
        Variable(
            "num_gradients",
            "work: epochs trained, a gradient over the training data each; products "
            "with the Hessian and rows of a Fisher matrix are not counted",
            dtype="int64",
        ),
        Variable(
            "diverged_epoch",
            "epoch at which divergence was seen; -1 if none",
            dtype="int64",
            units="epoch",
        ),
        Variable("num_parameters", "number of parameters, D", dtype="int64"),
        Variable(
            "checkpoint",
            "epochs whose weights are kept",
            ("checkpoint",),
            dtype="int64",
            units="epoch",
            bulk=True,
        ),
        Variable(
            "weights",
            "parameters as one vector, in the order of `network`, and behind them the "
            "statistics that a batch norm keeps",
            ("checkpoint", "parameter"),
            units="parameter",
            bulk=True,
            sliced="checkpoint",
        ),
        Variable(
            "network",
            "the trained function and its loss, as JSON",
            (),
            "str",
            bulk=True,
        ),
        Variable(
            "rule_state",
            "what the rule keeps between steps at the end, each of its quantities "
            "flattened, one after another, such as the velocity of sgd with momentum; "
            "last the present weights, where the rule gives others for its result",
            ("rule_entry",),
            units="mixed",
            bulk=True,
        ),
        Variable(
            "preconditioner",
            "diagonal of P, where the rule's steps are P^-1 times a mean of gradients; "
            "NaN before the first step; with keep_preconditioner",
            ("checkpoint", "entry"),
            units="mixed",
            bulk=True,
            sliced="checkpoint",
            optional=True,
        ),
        Variable(
            "preconditioned_lr",
            "learning rate that P goes with",
            ("checkpoint",),
            bulk=True,
            sliced="checkpoint",
            optional=True,
        ),
        Variable(
            "stable_up_to",
            "the learning rate times the sharpness under P above which steps grow",
            ("checkpoint",),
            bulk=True,
            sliced="checkpoint",
            optional=True,
        ),
    ),
    accelerated=True,
    inputs={"data": Input(Data)},
    varying=("seed", "rule", "model.init"),
    checkpoints=kept_epochs,
    loads={
        "rule.rule": "curvflow.tasks.rules",
        "rule.inner.rule": "curvflow.tasks.rules",
        "model.kind": "curvflow.tasks.models",
    },
    carries=("model",),
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
            *PRECONDITIONER,
        ),
    ),
)
