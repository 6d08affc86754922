"""Variables of training: curves, their last values, checkpoints and states."""

from __future__ import annotations

from curvflow.schemas.kind import Variable

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

# Those of some rules alone, which are recorded where a rule tells them.
RULES_RECORD = (
    "damping",
    "preconditioner_damping",
    "reduction_ratio",
    "predicted_change",
    "rejected_share",
    "cg_iterations",
    "cg_residual",
)

# Beside them that of rules which choose it, and one that is asked for.
RECORDED = (*CURVES, "chosen_momentum", "step_norm", *RULES_RECORD)

# What is kept of a rule's preconditioner.
PRECONDITIONER = ("preconditioner", "preconditioned_lr", "stable_up_to")

# The losses of tokens of which a perplexity is told, as `..._perplexity`.
PERPLEXED = ("train", "test")

# Those whose last value tables hold as well, as `final_...`.
FINAL = (*CURVES[:7], "path_norm")


def _curve(
    name: str, description: str, units: str = "1", *, optional: bool = False
) -> Variable:
    return Variable(
        name, description, ("epoch",), units=units, series=True, optional=optional
    )


OUTPUTS = (
    Variable(
        "epoch",
        "epochs completed; 0 is before training",
        ("epoch",),
        dtype="int64",
        units="epoch",
        series=True,
    ),
    _curve("train_loss", "loss over all training data", "loss"),
    _curve(
        "validation_loss",
        "loss over the validation samples; NaN if there are none",
        "loss",
    ),
    _curve("test_loss", "loss over all test data; NaN without any", "loss"),
    _curve("train_accuracy", "share of training samples classified rightly"),
    _curve(
        "validation_accuracy",
        "share of the validation samples labelled right; NaN if there are none",
    ),
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
    _curve("lr", "learning rate of the last step of the epoch that ends here"),
    Variable(
        "chosen_momentum",
        "momentum of the epoch that ends here, of rules that choose it",
        ("epoch",),
        series=True,
        optional=True,
    ),
    Variable(
        "step_norm",
        "mean over the steps of the epoch that ends here of the norm of the change "
        "over the learning rate: of sgd that of the gradients; with record_step_norms",
        ("epoch",),
        units="mixed",
        series=True,
        optional=True,
    ),
    _curve(
        "damping",
        "of the quadratic model, at the end",
        "curvature",
        optional=True,
    ),
    _curve(
        "preconditioner_damping",
        "of the blocks, at the end",
        "curvature",
        optional=True,
    ),
    _curve(
        "reduction_ratio",
        "change of a batch's loss by a step over what its quadratic model predicts, "
        "when last taken; NaN before",
        optional=True,
    ),
    _curve(
        "predicted_change",
        "change of the loss that the model predicts of the epoch's last step; NaN "
        "without a model",
        "loss",
        optional=True,
    ),
    _curve(
        "rejected_share",
        "share of the epoch's steps taken back",
        optional=True,
    ),
    _curve(
        "cg_iterations",
        "of the last step; NaN before training",
        optional=True,
    ),
    _curve(
        "cg_residual",
        "that these left, relative to the gradient",
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
    Variable("final_test_accuracy", "test accuracy at the end, likewise"),
    Variable("final_norm_l2", "Euclidean norm of the final weights", units="parameter"),
    Variable("final_path_norm", "path norm of the final weights"),
    Variable(
        "norm_tensor_sum",
        "sum of the Frobenius norms of the final parameter tensors",
        units="parameter",
    ),
    Variable(
        "num_gradients",
        "work: epochs trained, a gradient over the training data each, under sam two; "
        "products with the Hessian and rows of a Fisher matrix are not counted",
        dtype="int64",
    ),
    Variable(
        "diverged_epoch",
        "epoch at which divergence was seen; -1 if none",
        dtype="int64",
        units="epoch",
    ),
    Variable(
        "reached",
        "whether the training loss of `until` was reached",
        dtype="bool",
        optional=True,
    ),
    Variable(
        "reached_epoch",
        "first epoch at which the bound of until was reached, whose weights and values "
        "are kept from there on; NaN if it was not",
        units="epoch",
        optional=True,
    ),
    *(
        Variable(
            f"{of}_perplexity",
            f"exponential of {of}_loss, for tokens",
            ("epoch",),
            series=True,
            optional=True,
        )
        for of in PERPLEXED
    ),
    *(
        Variable(
            f"final_{of}_perplexity",
            f"exp of final_{of}_loss, for tokens",
            optional=True,
        )
        for of in PERPLEXED
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
        "state of the rule after the last step, its tensors flattened, one after "
        "another, such as the velocity of sgd with momentum; last the weights stepped "
        "from, where the result of the rule is another, such as an average",
        ("rule_entry",),
        units="mixed",
        bulk=True,
    ),
    Variable(
        "preconditioner",
        "P, where steps are P^-1 times a mean of gradients: its diagonal, of kfac all "
        "blocks in a row; NaN before the first step; with keep_preconditioner",
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
)
