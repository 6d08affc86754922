"""Declaration of `aggregate.join`."""

from __future__ import annotations

from curvflow.schemas.explanations import REPEATED, Explanation
from curvflow.schemas.kind import Input, Kind
from curvflow.schemas.kinds.shared.tables import OUTPUTS, SideBySide
from curvflow.schemas.nodes import Numbers, Table


class JoinParams(SideBySide):
    """Rows and columns of the joined table."""


KIND = Kind(
    name="aggregate.join",
    version=1,
    summary="Results of several stages side by side, a row for each label.",
    params=JoinParams,
    returns=Table,
    outputs=OUTPUTS,
    inputs={"of": Input(Numbers, many=True)},
    reduces=("rows",),
    selects=("quantities",),
    vectorised=False,
)

EXPLANATION = Explanation(
    formula=(
        "one row for each label of rows, one column for each number, and beside "
        "each value its state"
    ),
    source="none: numbers as they are",
    cost="none: stored numbers are read",
    example=REPEATED
    + """\
  norms: {use: probe.norms, weights: fit}
  together: {use: aggregate.join, of: [fit, norms], rows: [rule, seed],
             quantities: [final_test_loss, norm_l2]}
""",
    page="statistics.md#join-and-select",
)
