"""What factors save beside the matrix that they stand for, and whether it is true.

    python -m benchmarks.factor_controls

Traces with `type-2` factors as control variate: how many of 300 intervals of 64 vectors
hold the truth, and the variance of the estimates relative to that of the same vectors
without factors; of small networks with four structures, of one for factors of other
weights, and of digits, 64-16-16-10 tanh, trained to a loss of about 0.03. Of the same
network log-determinants by quadrature, and the lowest eigenvalues of the Hessian by
LOBPCG, with factors and without. Prints tables in Markdown; all is drawn by fixed
seeds.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from sklearn.datasets import load_digits

from benchmarks.factor_intervals import NETS, dense, member, outcome_of, trained
from curvflow.schemas.kinds.shared.datasets import dataset
from curvflow.schemas.nodes import Array, Data, Factors, NodeData, Weights
from curvflow.tasks.registry import Machine, find

REPETITIONS, AT_ONCE, PROBES = 300, 50, 64
DIGITS = {"kind": "mlp", "hidden": [16, 16], "activation": "tanh"}


def digits() -> tuple[Data, Weights]:
    """Return 600 digits, and a network trained on them."""
    images, labels = load_digits(return_X_y=True)
    arrays = dataset(images[:600] / 16, labels[:600])
    data = Data("data", "data.array", {}, arrays, "digits")
    settings = {"model": DIGITS, "rule": {"rule": "adam", "lr": 0.02}, "epochs": 60}
    told = outcome_of("train", member("train", settings, data=data)).arrays
    taken = {"weights": told["weights"][-1], "network": told["network"]}
    print(f"digits: loss {float(told['train_loss'][-1]):.3f} at the end of training\n")
    return data, Weights("fit", "train", {}, taken, "d")


def factors_of(given: Mapping[str, NodeData], structure: str) -> Factors:
    """Return type-2 factors of a network."""
    params = {"structure": structure}
    found = outcome_of("probe.factors", member("probe.factors", params, **given))
    return Factors("factors", "probe.factors", {}, found.arrays, structure)


def cases() -> Iterator[tuple[str, Mapping[str, NodeData], Factors]]:
    """Yield names, networks and factors."""
    for name, model in NETS.items():
        data, weights = trained(model)
        given = {"weights": weights, "data": data}
        for structure in ("kron", "ekfac", "diag", "block"):
            yield f"{name}, {structure}", given, factors_of(given, structure)
    mirrored = {**weights.arrays, "weights": -weights["weights"][::-1].copy()}
    others = Weights("fit", "train", {}, mirrored, "m")
    other = factors_of({"weights": others, "data": data}, "kron")
    yield f"{name}, kron of other weights", given, other


def repeated(
    given: Mapping[str, NodeData], kind: str, **params: Any
) -> list[Mapping[str, Array]]:
    """Return results of many seeds."""
    found: list[Mapping[str, Array]] = []
    for start in range(0, REPETITIONS, AT_ONCE):
        seeds = range(start, start + AT_ONCE)
        several = [member(kind, {**params, "seed": s}, **given) for s in seeds]
        found += [each.arrays for each in find(kind).compute(several, Machine())]
    return found


def ratio_of_variances(
    above: Sequence[Mapping[str, Array]], below: Sequence[Mapping[str, Array]]
) -> tuple[float, float]:
    """Return the ratio of the variances of paired traces, and its jackknife error."""
    pairs = np.array(
        [(a["trace"], b["trace"]) for a, b in zip(above, below, strict=True)]
    )
    left_out = [np.delete(pairs, number, axis=0) for number in range(len(pairs))]
    logs = [np.log(few.var(0)) for few in left_out]
    each = np.array([one - other for one, other in logs])
    whole = pairs.var(0)
    spread = (each - each.mean()) ** 2
    sem = np.sqrt((len(pairs) - 1) / len(pairs) * spread.sum())
    ratio = whole[0] / whole[1]
    return float(ratio), float(ratio * sem)


def trace_row(name: str, given: Mapping[str, NodeData], factors: Factors) -> str:
    """Return the row of traces of one network and its factors."""
    params = {"operator": "ggn", "num_probes": PROBES}
    exact = float(dense(member("probe.trace", params, **given)).trace())
    with_factors = {**given, "preconditioner": factors}
    controlled = repeated(with_factors, "probe.trace", **params)
    plain = repeated(given, "probe.trace", **params)
    held = np.mean([f["trace_low"] <= exact <= f["trace_high"] for f in controlled])
    ratio, sem = ratio_of_variances(controlled, plain)
    told = np.mean([f["variance_left"] for f in controlled])
    return f"| {name} | {held:.1%} | {ratio:.2f} ± {sem:.2f} | {told:.2f} |"


def determinants(given: Mapping[str, NodeData], factors: Factors) -> Iterator[str]:
    """Yield rows of log-determinants, by damping."""
    params: dict[str, Any] = {"operator": "ggn", "num_runs": 10, "num_steps": 20}
    matrix = dense(member("probe.trace", {"operator": "ggn"}, **given))
    for damping in (1e-1, 1e-2, 1e-3):
        exact = (matrix + damping * torch.eye(len(matrix))).logdet()
        cells = []
        for more in ({"preconditioner": factors}, {}):
            settings = {**params, "damping": damping}
            one = member("probe.logdet", settings, **given, **more)
            told = outcome_of("probe.logdet", one).arrays
            off = float(told["logdet"]) - float(exact)
            flag = "converged" if told["converged"] else "not converged"
            cells.append(f"{off:+.2f} ± {float(told['logdet_sem']):.2f}, {flag}")
        yield f"| {damping:g} | {float(exact):.1f} | {' | '.join(cells)} |"


def lowest(given: Mapping[str, NodeData], factors: Factors) -> Iterator[str]:
    """Yield rows of products until the lowest eigenvalues of the Hessian are found."""
    for k in (1, 5):
        params: dict[str, Any] = {"k": k, "method": "lobpcg", "which": "SA"}
        params |= {"oversampling": 3, "tol": 1e-3, "max_iterations": 600}
        cells = []
        for more in ({"preconditioner": factors}, {}):
            one = member("probe.eigenvalues", params, **given, **more)
            told = outcome_of("probe.eigenvalues", one).arrays
            ended = "" if told["converged"].all() else ", not converged"
            cells.append(f"{int(told['num_matvecs'])}{ended}")
        yield f"| {k} | {' | '.join(cells)} |"


def main() -> None:
    """Print all tables."""
    data, weights = digits()
    given = {"weights": weights, "data": data}
    factors = factors_of(given, "kron")
    print("| trace of | intervals that hold it | variance left | as told |")
    print("|---|---|---|---|")
    for case in (*cases(), ("digits, kron", given, factors)):
        print(trace_row(*case), flush=True)
    print("\n| damping | log det | with factors off by | without |\n|---|---|---|---|")
    print("\n".join(determinants(given, factors)))
    print("\n| lowest eigenvalues | products with factors | without |\n|---|---|---|")
    print("\n".join(lowest(given, factors)))


if __name__ == "__main__":
    main()
