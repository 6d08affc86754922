"""Declaration of `figure.chains`."""

from __future__ import annotations

from pydantic import Field

from curvflow.schemas.explanations import Explanation
from curvflow.schemas.kind import Input, Kind, Variable
from curvflow.schemas.kinds.shared.figures import PICTURES, FigureParams
from curvflow.schemas.nodes import Draws, Figure


class ChainsFigureParams(FigureParams):
    """Draws that have a row of panels."""

    label: str | None = Field(None, description="axis whose labels have a row each")


def _point(name: str, description: str, units: str = "1") -> Variable:
    return Variable(name, description, ("point",), units=units, series=True)


def _trial(
    name: str, description: str, dtype: str = "float64", units: str = "1"
) -> Variable:
    return Variable(
        name, description, ("trial",), dtype=dtype, units=units, series=True
    )


KIND = Kind(
    name="figure.chains",
    version=4,
    summary="Losses of chains, the estimate as draws are added, and the sweep.",
    params=ChainsFigureParams,
    returns=Figure,
    outputs=(
        *PICTURES,
        Variable("label", "row of each point", ("point",), dtype="str", series=True),
        Variable(
            "source",
            "chain and its number, or running for the estimate",
            ("point",),
            dtype="str",
            series=True,
        ),
        _point("draw", "number of the draw, or of draws so far", "draw"),
        _point("value", "loss, or estimate", "as source"),
        _point("sem", "standard error of the estimate; NaN of a loss"),
        _trial("trial_label", "row of each trial of a sweep", "str"),
        _trial("trial_parameter", "parameter that it varied", "str"),
        _trial("trial_value", "its value", units="as trial_parameter"),
        _trial("trial_llc", "its estimate"),
        _trial("trial_sem", "standard error of that"),
        _trial("trial_in_plateau", "whether it is on the plateau", "bool"),
        _trial("predicted", "the coefficient if the minimum were regular"),
    ),
    inputs={"of": Input(Draws, many=True)},
    reduces=("over", "label"),
    vectorised=False,
)

EXPLANATION = Explanation(
    formula=(
        "L(w) of every draw of every chain; λ̂ from the draws so far, with its "
        "error; the estimates of the sweep"
    ),
    source="that of probe.llc",
    cost="none: stored draws are drawn",
    example="""\
study: example
stages:
  xor: {use: data.xor}
  fit: {use: train, data: xor,
        model: {kind: mlp, hidden: [3], activation: tanh},
        rule: {rule: sgd, lr: 0.1}, epochs: 200}
  llc: {use: probe.llc, weights: fit, num_draws: 50,
        num_steps_bw_draws: 5}
  traces: {use: figure.chains, of: llc}
""",
    page="llc.md#the-verdict",
)
