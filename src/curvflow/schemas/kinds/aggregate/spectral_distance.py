"""Declaration of `aggregate.spectral_distance`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

from pydantic import Field, model_validator

from curvflow.errors import nearest
from curvflow.schemas.checks.name_checks import unknown_label
from curvflow.schemas.explanations import Explanation
from curvflow.schemas.kind import Axes, Input, Kind, ParamProblem, Taken, Variable
from curvflow.schemas.kinds.shared.deflation import of_whole_spectrum
from curvflow.schemas.kinds.shared.tables import OneOrMoreNames, failed
from curvflow.schemas.nodes import Distances, Label, Ritz, Spectrum
from curvflow.schemas.params import Floats, Params

UNITS = "as the divergence"
# Those that compare multipliers, which only densities of largest entropy have.
ENTROPIC = ("symmetric_kl", "kl", "js")
MAXENT = "probe.maxent"


class SpectralDistanceParams(Params):
    """The spectra that are compared, and how."""

    along: OneOrMoreNames = Field(
        (),
        description="axes whose labels, together, have a spectrum each; of several "
        "stages each has spectra of its own, along those of the axes that it has",
    )
    to: Label | None = Field(
        None,
        description="label that the others are compared with; null compares all pairs, "
        "or all with `target`",
    )
    divergence: Literal["symmetric_kl", "kl", "js", "wasserstein1", "heat_trace"] = (
        Field(
            description="symmetric_kl, half of the sum of both relative entropies; kl, "
            "relative entropy of the first with respect to the second; js, Jensen and "
            "Shannon's; wasserstein1; heat_trace, norm of the difference of heat traces"
        )
    )
    times: Floats | None = Field(
        None,
        min_length=1,
        description="of heat_trace; null takes 250 from 0.01 to 100, spaced alike in "
        "their logarithm",
    )
    confidence: float = Field(0.95, gt=0, lt=1, description="coverage of the intervals")
    num_resamples: int = Field(
        100, ge=10, description="pairs of spectra as other vectors might give them"
    )
    seed: int = Field(0, ge=0, description="seed of these")

    @model_validator(mode="after")
    def _times_of_heat(self) -> SpectralDistanceParams:
        if self.times is None:
            return self
        if self.divergence != "heat_trace":
            raise ValueError(
                f"'times' cannot be combined with {self.divergence}. Remove it."
            )
        if min(self.times) < 0:
            raise ValueError(
                f"expected times of 0 or more, got {min(self.times):g}. Remove it."
            )
        return self


def _check_names(
    params: SpectralDistanceParams, taken: Taken
) -> Iterator[ParamProblem]:
    if params.to is not None and "target" in taken:
        yield ("to",), "'to' cannot be combined with 'target'", "Remove one of them."
    for name, kinds in taken.items():
        for stage, kind in kinds.items():
            if params.divergence in ENTROPIC and kind.output("multipliers") is None:
                message = f"expected a stage of {MAXENT}, got '{stage}' of {kind.name}"
                hint = "wasserstein1 and heat_trace take others too."
                yield (name,), message, hint
            elif not (kind.output("mass") or issubclass(kind.returns, Ritz)):
                message = f"expected a spectrum, got '{stage}' of {kind.name}"
                yield (name,), message, nearest(kind.name, [MAXENT, "probe.spectrum"])


def _check_axes(params: SpectralDistanceParams, axes: Axes) -> Iterator[ParamProblem]:
    if params.to is not None and len(params.along) == 1:
        yield from unknown_label(("to",), params.along[0], params.to, axes)


def _alike(params: SpectralDistanceParams) -> tuple[str, ...]:
    """Return what densities share whose multipliers compare."""
    is_entropic = params.divergence in ENTROPIC
    return ("support", "prior", "basis") if is_entropic else ()


def _column(name: str, description: str, units: str = UNITS) -> Variable:
    return Variable(name, description, ("quantity",), units=units)


def _text(name: str, description: str) -> Variable:
    return Variable(name, description, ("quantity",), dtype="str")


def _of_items(name: str, description: str, *dims: str) -> Variable:
    """Declare what belongs to the matrix, not to the rows of pairs."""
    return Variable(name, description, dims, dtype="str", series=True)


KIND = Kind(
    name="aggregate.spectral_distance",
    version=2,
    summary="Distances of spectra, with their errors and the floor of the noise.",
    params=SpectralDistanceParams,
    returns=Distances,
    outputs=(
        _text("quantity", "`distance: one against another`, by their labels"),
        _text("label", "labels of the one"),
        _text("against", "labels of the other, or the name of the target's stage"),
        _column("value", "label of the one, if it is a single number; else NaN", "1"),
        Variable(
            "distance",
            "the divergence",
            ("quantity",),
            "float64",
            UNITS,
            judged_by="converged",
        ),
        _column(
            "distance_sem",
            "standard error that comes from the random vectors; NaN of single ones",
        ),
        _column("bias", "by how much the errors of the vectors enlarge it on average"),
        _column("distance_low", "lower limit of an interval of the distance less bias"),
        _column("distance_high", "upper limit of it"),
        _column(
            "floor",
            "distance of two halves of the vectors of one spectrum, mean of both: less "
            "is noise",
        ),
        Variable(
            "converged", "whether both densities are", ("quantity",), dtype="bool"
        ),
        Variable(
            "diverged", "spectra that are of diverged nodes", ("quantity",), "int64"
        ),
        _of_items("axis", "axes of the labels", "axis"),
        _of_items("item", "labels of each spectrum", "item"),
        _of_items("other_item", "the same", "other_item"),
        _of_items("labels", "labels on each axis", "item", "axis"),
        Variable(
            "matrix",
            "the divergence of each from each; NaN where it is not computed",
            ("item", "other_item"),
            units=UNITS,
            series=True,
        ),
        failed(),
    ),
    inputs={
        "of": Input(Spectrum, many=True, lacking=of_whole_spectrum("of")),
        "target": Input(
            Spectrum, optional=True, single=True, lacking=of_whole_spectrum("target")
        ),
    },
    reduces=("along",),
    reduces_any=True,
    check_axes=_check_axes,
    check_names=_check_names,
    alike=_alike,
    vectorised=False,
)

EXPLANATION = Explanation(
    formula=(
        "KL(p, q) = -Σ (α - β)_k μ_k of p over the orders 0 .. K; symmetric: "
        "½ Σ (α - β)_k (μ_k of q - μ_k of p); ∫ |P - Q|; ‖h_p - h_q‖, "
        "h(t) = mean of exp(-t λ)"
    ),
    source=(
        "Granziol (2020), Eqs. (3.11) and (3.12), with the order 0; Tsitsulin et al. "
        "(2018), doi:10.1145/3219819.3219991, for heat traces"
    ),
    cost="none: stored spectra are read, and resampled num_resamples times",
    example="""\
study: example
axes: {p: [0.05, 0.1, 0.2]}
stages:
  graph: {use: data.random_graph, model: erdos_renyi, n: 200, p: "${p}"}
  moments: {use: probe.moments, graph: graph, num_moments: 10, num_probes: 10,
            support: [0.0, 2.0]}
  density: {use: probe.maxent, moments: moments}
  distance: {use: aggregate.spectral_distance, of: density, along: p,
             divergence: symmetric_kl, num_resamples: 20}
""",
    page="graphs.md#distances-of-spectra",
    units={"to": "as the axis", "times": "1 / eigenvalue"},
)
