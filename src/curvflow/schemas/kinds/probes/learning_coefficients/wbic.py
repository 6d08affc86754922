"""Declaration of `probe.wbic`."""

from __future__ import annotations

from curvflow.schemas.explanations import Explanation
from curvflow.schemas.kind import Input, Kind, Variable
from curvflow.schemas.kinds.shared.operators import LOCALIZATION, NBETA, not_at_wbic
from curvflow.schemas.nodes import Draws, Numbers
from curvflow.schemas.params import Params


class WbicParams(Params):
    """There is nothing to choose: the draws settle it."""


def _nats(name: str, description: str, dims: tuple[str, ...] = ()) -> Variable:
    return Variable(name, description, dims, units="nat", judged_by="verdict")


KIND = Kind(
    name="probe.wbic",
    version=3,
    summary="Widely applicable Bayesian information criterion, n E L at 1 / ln n.",
    params=WbicParams,
    returns=Numbers,
    outputs=(
        _nats("wbic", "n E L, over the chains that did not fail"),
        _nats("wbic_sem", "standard error, of autocorrelated draws"),
        _nats("wbic_per_chain", "of each; NaN if it failed", ("chain",)),
        Variable("training_loss", "n L at the weights", units="nat"),
        _nats("penalty", "wbic - training_loss, which is llc ln n"),
        Variable(
            "num_samples",
            "samples of the data of which a label counts, n",
            dtype="int64",
        ),
        NBETA,
        LOCALIZATION,
        Variable("verdict", "on the chains, as probe.llc gave it", dtype="str"),
    ),
    main=("wbic", "wbic_sem"),
    inputs={"draws": Input(Draws, lacking=not_at_wbic)},
    vectorised=False,
)

EXPLANATION = Explanation(
    formula=(
        "wbic = n E L(w), w from the posterior at nβ = n / ln n; penalty = wbic - n "
        "L(w*)"
    ),
    source="Watanabe (2013), JMLR 14, 867: definition of WBIC and theorem 4",
    cost="none: draws are read",
    example="""\
study: example
stages:
  xor: {use: data.xor}
  fit: {use: train, data: xor,
        model: {kind: mlp, hidden: [3], activation: tanh},
        rule: {rule: sgd, lr: 0.1}, epochs: 200}
  llc: {use: probe.llc, weights: fit, num_draws: 50,
        num_steps_bw_draws: 5}
  wbic: {use: probe.wbic, draws: llc}
""",
    page="llc.md#free-energies",
)
