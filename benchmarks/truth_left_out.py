"""Numbers that state an error and are not compared by `truth.py`, each with its reason.

A kind joins by declaring `Kind.truth`. A variable with an error, or with a flag, of a
kind that neither declares its truth nor stands here fails a test.
"""

from __future__ import annotations

from collections.abc import Iterator

from curvflow.schemas.kind import Kind, error_of

ENDS = ("_sem", "_low", "_high")
FLAGS = ("converged", "verdict")

_CHAINS = "of the draws of `probe.llc`, which are compared as its coefficient"
_OBSERVABLES = "of chains about Gaussian posteriors, held by `benchmarks.observables`"
_OF_TABLES = "a statistic of rows, whose law is that of seeds; no operator has it"
_COPIED = "as another kind measured it"
_FOLLOWS = "a function of one number that is compared"
_BLOCKS = "the sizes of its blocks are not told; `tests/tasks/probes/test_trace.py`"

# By kind, or by kind and variable where others of the kind are compared.
LEFT_OUT = {
    "aggregate.best": _OF_TABLES,
    "aggregate.compare": _OF_TABLES,
    "aggregate.correlate": _OF_TABLES,
    "aggregate.coverage": _OF_TABLES,
    "aggregate.minimum": _OF_TABLES,
    "aggregate.scaling": _OF_TABLES,
    "aggregate.spectral_distance": "of two operators; a case has one",
    "aggregate.summary": _OF_TABLES,
    "figure.chains": _COPIED,
    "figure.scatter": _COPIED,
    "monitor.read": "of weights that training passed, and does not keep",
    "probe.alignment": "a mean over batches, held by `benchmarks.alignment_intervals`",
    "probe.covariances": _OBSERVABLES,
    "probe.crosscheck": _COPIED,
    "probe.dense": "the truth of others, exact but for rounding",
    "probe.factors": "exact eigenpairs, or labels drawn, whose error is relative",
    "probe.free_energy.watanabe": _CHAINS,
    "probe.free_energy.wbic": _CHAINS,
    "probe.gradient_variance.batch_gradient_variance": _FOLLOWS,
    "probe.gradient_variance.layer_gradient_variance": "a part of what is compared",
    "probe.gradient_variance.noise_scale": "has no error; by what is compared",
    "probe.hessian_trace.layer_trace": _BLOCKS,
    "probe.influence": _OBSERVABLES,
    "probe.kpm.density": "smoothed, of an operator that has points alone",
    "probe.landscape": "values of the loss; the flag is of eigenvectors taken",
    "probe.llc": "compared through `probe.llc_known`, whose posterior is known",
    "probe.llc_known": "the truth of `probe.llc`, with an error of its own",
    "probe.llc_pointwise": _OBSERVABLES,
    "probe.llc_regular.llc_mean": _COPIED,
    "probe.llc_regular.llc_sem": _COPIED,
    "probe.llc_regular.llc_singular": "llc_mean less what is compared",
    "probe.llc_regular.z": "llc_singular in its errors",
    "probe.logdet.logdet_scaled": _FOLLOWS,
    "probe.maxent.density": "smooth, of an operator that has points alone",
    "probe.maxent.dual": "of the density, not of the operator",
    "probe.maxent.entropy": "of the density, not of the operator",
    "probe.maxent.kl": "of the density, not of the operator",
    "probe.sharpness.critical_lr": _FOLLOWS,
    "probe.sharpness.critical_sharpness": _FOLLOWS,
    "probe.sharpness.edge": _FOLLOWS,
    "probe.sharpness.scaled_sharpness": _FOLLOWS,
    "probe.spectrum.rank_degeneracy": "weight of Ritz values, of no eigenvalue",
    "probe.susceptibility": _OBSERVABLES,
    "probe.trace.layer_trace": _BLOCKS,
    "probe.wbic": _CHAINS,
} | {
    f"probe.factor_error.{of}{part}": "needs factors beside exact ones, held by "
    "`benchmarks.factor_intervals`"
    for of in ("", "block_")
    for part in ("factorisation", "departure", "interplay")
}


def stating(kind: Kind) -> Iterator[str]:
    """Yield the variables of a kind that state an error, or whose flag it tells."""
    names = {variable.name for variable in kind.outputs}
    bounded = {variable.error_of for variable in kind.outputs}
    for name in sorted(names):
        is_end = any(
            name.endswith(end) and name.removesuffix(end) in names for end in ENDS
        )
        variable = kind.output(name)
        has_error = error_of(kind, name) or f"{name}_low" in names or name in bounded
        if not is_end and (has_error or (variable and variable.judged_by)):
            yield name


def states_errors(kind: Kind) -> bool:
    """Return whether a kind has a number with an error, or a flag."""
    ends = any(variable.name.endswith(ENDS) for variable in kind.outputs)
    return ends or any(variable.name in FLAGS for variable in kind.outputs)


def is_left_out(kind: str, variable: str = "") -> bool:
    """Return whether a kind, or one of its variables, stands in the list."""
    return kind in LEFT_OUT or f"{kind}.{variable}" in LEFT_OUT
