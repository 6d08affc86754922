"""Declaration of `probe.crosscheck`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Annotated

from pydantic import Field

from curvflow.errors import nearest
from curvflow.schemas.explanations import TRAINED, Explanation
from curvflow.schemas.kind import Input, Kind, ParamProblem, Taken, Variable
from curvflow.schemas.nodes import Numbers
from curvflow.schemas.params import Names, Params

UNITS = "as the quantity"


class Stated(Params):
    """A value known otherwise."""

    value: float = Field(description="the value")
    sem: float = Field(0.0, ge=0, description="its standard error; 0 if it is exact")


class CrosscheckParams(Params):
    """Quantity that is compared, and the tolerance of agreement."""

    quantity: str = Field(
        "trace",
        description="variable that the stages have in common, such as trace or logdet; "
        "its error is the variable of this name with _sem, and exact without one",
    )
    variables: Mapping[str, str] = Field(
        default_factory=dict,
        description="per stage the variable, where its name is another",
    )
    sums: Mapping[str, Names] = Field(
        default_factory=dict,
        description="a route's name and the stages that add up to it, such as the "
        "Gauss-Newton matrix and the residual; these are no routes themselves",
    )
    stated: Mapping[str, Stated] = Field(
        default_factory=dict, description="further routes: a name, and value and sem"
    )
    draws: Mapping[str, Annotated[int, Field(ge=2)]] = Field(
        default_factory=dict,
        description="per stage how many draws its error comes from, where it does not "
        "say so by num_draws; others' errors are taken as known",
    )
    confidence: float = Field(
        0.999,
        gt=0,
        lt=1,
        description="chance that sound routes are found consistent, all pairs together",
    )
    rounding: float = Field(
        1e-6,
        ge=0,
        lt=1,
        description="relative error of every route, added to the stated error",
    )


def _check_names(params: CrosscheckParams, taken: Taken) -> Iterator[ParamProblem]:
    kinds = taken["of"]
    named: list[tuple[tuple[str | int, ...], str]] = [
        *((("variables", stage), stage) for stage in params.variables),
        *((("draws", stage), stage) for stage in params.draws),
    ]
    for route, stages in params.sums.items():
        named += [(("sums", route, at), stage) for at, stage in enumerate(stages)]
    for path, stage in named:
        if stage not in kinds:
            yield path, f"expected a stage taken, got '{stage}'", nearest(stage, kinds)
    for stage, kind in kinds.items():
        name = params.variables.get(stage, params.quantity)
        numbers = [variable.name for variable in kind.outputs if not variable.dims]
        if name not in numbers:
            is_own = stage in params.variables
            message = f"expected a single number of {stage}, got '{name}'"
            path = ("variables", stage) if is_own else ("quantity",)
            yield path, message, nearest(name, numbers)
    for route in [*params.sums, *params.stated]:
        if route in kinds or (route in params.sums and route in params.stated):
            field = "stated" if route in params.stated else "sums"
            message = f"expected another name than that of a route, got '{route}'"
            yield (field, route), message, "Rename it."


KIND = Kind(
    name="probe.crosscheck",
    version=1,
    summary="Independent routes to one quantity, compared by their stated errors.",
    params=CrosscheckParams,
    returns=Numbers,
    outputs=(
        Variable(
            "route", "stages, layers of a stage, sums, stated values", ("route",), "str"
        ),
        Variable("route_value", "value of each route", ("route",), units=UNITS),
        Variable("route_sem", "its standard error", ("route",), units=UNITS),
        Variable(
            "z",
            "the largest deviation from another route, as a normal deviate",
            ("route",),
        ),
        Variable(
            "pair_z",
            "deviation of each route from each other, as a normal deviate",
            ("route", "other"),
            series=True,
        ),
        Variable("largest_z", "the largest |z| of all pairs"),
        Variable("limit", "the |z| beyond which two routes disagree"),
        Variable(
            "resolution",
            "smallest relative difference of the two least certain routes that would "
            "have been seen",
        ),
        Variable(
            "consistent", "whether all are known and no two disagree", dtype="bool"
        ),
    ),
    main=("largest_z", "consistent"),
    inputs={"of": Input(Numbers, many=True)},
    check_names=_check_names,
    vectorised=False,
)

EXPLANATION = Explanation(
    formula=(
        "z of two routes a, b: (a - b) / √(sem_a² + sem_b²), as a normal deviate by "
        "Welch's degrees of freedom; consistent if all |z| ≤ limit"
    ),
    source="Welch (1947), doi:10.1093/biomet/34.1-2.28",
    cost="none: stored numbers are read",
    example=TRAINED
    + """\
  trace: {use: probe.trace, weights: fit, num_probes: 32}
  exact: {use: probe.dense, weights: fit}
  agree: {use: probe.crosscheck, of: [trace, exact], quantity: trace}
""",
    page="traces.md#several-routes-to-one-number",
    units={
        "stated": "as the quantity",
        "stated.value": "as the quantity",
        "stated.sem": "as the quantity",
    },
)
