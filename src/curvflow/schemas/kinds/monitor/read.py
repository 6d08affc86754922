"""Declaration of `monitor.read`, and of all that a `curvflow.Monitor` measures."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated

from pydantic import Field

from curvflow.errors import InputError
from curvflow.schemas.explanations import Explanation
from curvflow.schemas.kind import Kind, Variable
from curvflow.schemas.nodes import Array, Numbers
from curvflow.schemas.params import Params, SourceFile

# The array of the file that says what was measured, and how.
IDENTITY = "identity"
CURVATURE, SQUARED = "loss / parameter^2", "(loss / parameter)^2"


class ReadParams(Params):
    """The file that a monitor has written."""

    path: Annotated[str, SourceFile()] = Field(
        description="monitor.npz of the folder that was a Monitor's `store`, or what "
        "its `save` has written, .npz"
    )


def check(params: ReadParams, files: Mapping[str, Mapping[str, Array]]) -> None:
    """Refuse a file that no monitor has written, before anything is computed.

    Args:
        params: not used.
        files: arrays per path field.

    Raises:
        InputError: the file lacks what every monitor writes.
    """
    for name in ("step", IDENTITY):
        if name not in files["path"]:
            known = ", ".join(list(files["path"])[:3]) or "none"
            raise InputError(
                f"path: expected a file that a curvflow.Monitor has written, got one "
                f"without '{name}', with {known}. Name the monitor.npz of its store."
            )


def _along(name: str, description: str, units: str = "1", **more: str) -> Variable:
    judge, dtype = more.get("judged_by"), more.get("dtype", "float64")
    return Variable(
        name,
        description,
        ("step",),
        dtype,
        units=units,
        series=True,
        optional=True,
        judged_by=judge,
        error_of=more.get("error_of"),
    )


def _at(name: str, description: str, dtype: str = "float64", **more: str) -> Variable:
    return Variable(
        name,
        description,
        ("llc_step",),
        dtype,
        series=True,
        optional=True,
        judged_by=more.get("judged_by"),
        error_of=more.get("error_of"),
    )


KIND = Kind(
    name="monitor.read",
    version=2,
    summary="Curvature that a curvflow.Monitor has measured in another training loop.",
    params=ReadParams,
    returns=Numbers,
    outputs=(
        Variable("step", "steps of the training loop", ("step",), dtype="int64"),
        Variable("num_measurements", "measurements made", dtype="int64"),
        Variable(
            "num_postponed", "measurements postponed for their cost", dtype="int64"
        ),
        _along("loss", "mean loss over the data of the monitor", "loss"),
        _along("step_loss", "loss that the loop gave; NaN without", "loss"),
        _along(
            "sharpness",
            "largest eigenvalue of the Hessian of the mean loss",
            CURVATURE,
            judged_by="sharpness_converged",
        ),
        _along(
            "sharpness_residual",
            "an eigenvalue lies within it",
            CURVATURE,
            error_of="sharpness",
        ),
        _along(
            "sharpness_converged", "whether the residual is within tol", dtype="bool"
        ),
        _along("sharpness_matvecs", "work: products with a vector", dtype="int64"),
        _along("trace", "trace of the Hessian of the mean loss", CURVATURE),
        _along("trace_sem", "its standard error", CURVATURE, error_of="trace"),
        _along("trace_matvecs", "work: products with a vector", dtype="int64"),
        _along(
            "gradient_variance",
            "sum over parameters of the variance between samples, S^2",
            SQUARED,
        ),
        _along(
            "gradient_variance_sem",
            "its standard error over parts drawn, and data drawn from a larger "
            "population; 0 where each sample of all was taken alone",
            SQUARED,
            error_of="gradient_variance",
        ),
        _along(
            "gradient_squared_norm", "||g||^2 of the mean gradient; unbiased", SQUARED
        ),
        _along(
            "gradient_squared_norm_sem",
            "its standard error over data drawn; 0 where they are the population",
            SQUARED,
            error_of="gradient_squared_norm",
        ),
        _along(
            "noise_scale",
            "S^2 / ||g||^2: the batch at which noise and gradient are equal; NaN where "
            "||g||^2 is lost in the noise",
            "samples",
        ),
        _along(
            "noise_scale_sem",
            "its standard error, of what that of S^2 is",
            "samples",
            error_of="noise_scale",
        ),
        _along(
            "critical_lr",
            "smallest learning rate at which a step along -g raises the loss",
            judged_by="critical_converged",
        ),
        _along(
            "critical_sharpness",
            "2 / critical_lr",
            "1 / learning rate",
            judged_by="critical_converged",
        ),
        _along("critical_converged", "whether it is within tolerance", dtype="bool"),
        _along("critical_passes", "work: evaluations of the loss", dtype="int64"),
        _along(
            "update_ratio",
            "|w - w0| / |w0|, w0 the weights at the last measurement",
        ),
        _along("update_steps", "steps since that", dtype="int64"),
        Variable(
            "layer", "names of the parameter tensors", ("layer",), "str", optional=True
        ),
        Variable(
            "layer_update_ratio",
            "the same of each parameter tensor; NaN where w0 is zero",
            ("step", "layer"),
            series=True,
            optional=True,
        ),
        _along("postponed", "measurements postponed since the last one", dtype="int64"),
        _along("seconds", "time that the measurement took", "s"),
        _along("loop_seconds", "time of the loop itself until then", "s"),
        _along("outcome", "ok, or failed: numbers are missing", dtype="str"),
        _along("reason", "why numbers are missing", dtype="str"),
        Variable(
            "llc_step",
            "steps with a coefficient",
            ("llc_step",),
            "int64",
            optional=True,
        ),
        _at("llc_mean", "local learning coefficient", judged_by="llc_converged"),
        _at("llc_sem", "its standard error", error_of="llc_mean"),
        _at("llc_converged", "whether the verdict is so", "bool"),
        _at("llc_verdict", "converged, or what is wrong", "str"),
        _at("llc_reason", "the verdict in words", "str"),
        _at("llc_seconds", "time that it took"),
    ),
    check=check,
    vectorised=False,
)

EXPLANATION = Explanation(
    formula="numbers as they are in the file, along the steps of the loop",
    source="none: the numbers are the user's",
    cost="none: the file is read once, and by its content",
    example="""\
study: example
stages:
  watched: {use: monitor.read, path: monitor.npz}
  curve: {use: figure.lines, of: watched, y: sharpness, x: step}
""",
    page="how-to/monitor.md",
)
