"""Random operators and posteriors, and probes of them, for `truth.py`.

A case is a study: a matrix of random eigenvalues, a small network just trained on
random data, or a random graph, and probes with random parameters on it; or a random
posterior about a degenerate minimum, and chains about it with nothing set but the
temperature. Eigenvalues follow a law over up to twelve decades, with clusters, gaps,
outliers, zeros and negative parts; those of a network and of a graph come from the
dense matrix, coefficients from `probe.llc_known`.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from benchmarks.posteriors import posterior
from curvflow.schemas.kinds import find_kind

Stages = dict[str, dict[str, Any]]  # by name, as written

LONG, EXACT = 1000, "_exact"  # steps, more than there are dimensions
APART = 7919  # between seeds of one probe again
PLANTED = "planted"  # a second graph, of clusters, with stages named after it
# The sorts of cases, each with the share of those up to it.
SORTS = {"networks": 0.3, "matrices": 0.75, "graphs": 0.85, "posteriors": 1.0}
CORNERS = 4  # samples of data.xor
OPERATORS = ("hessian", "ggn", "fisher_empirical", "gradient_covariance")
SEPARABLE = OPERATORS[:3]  # means over samples
# Stages whose flag is about a rule: how many standard errors of the vectors it may be
# off, unless it is off by less than that part of the value.
ALLOWED = {
    "probe.effective_dimension": (1.0, 0.01),
    "probe.logdet": (2.0, 1e-9),
    "probe.graph_functionals": (1.0, 0.01),
    "probe.llc_regular": (1.0, 0.01),
    "probe.free_energy": (1.0, 0.01),
}
# Kinds of a network that take no operator, or name their own.
OF_LOSS = (
    "probe.hessian_trace",
    "probe.sharpness",
    "probe.gradient_variance",
    "probe.hessian_variance",
    "probe.llc",
)
OF_DRAWS = ("probe.llc_regular", "probe.free_energy")
STRUCTURES = ("kron", "ekfac", "kfoc", "block", "diag")
# Functionals of graphs by operator: of any spectrum, and of one without its zeros.
FUNCTIONALS: dict[str, tuple[list[str], list[str]]] = {
    "normalized_laplacian": (["heat_trace", "entropy"], ["kemeny_constant"]),
    "laplacian": (["heat_trace", "entropy"], ["log_trees", "kirchhoff_index"]),
    "adjacency": (["estrada_index", "closed_walks", "triangles"], []),
}


def spectrum(draw: np.random.Generator) -> np.ndarray:
    """Draw the eigenvalues of a matrix."""
    size, low = int(draw.integers(20, 250)), -draw.uniform(0, 12)
    values = 10 ** draw.uniform(low, 0, size)
    law = draw.integers(5)
    if law == 1:
        values = 10 ** np.linspace(low, 0, size)
    if law == 2:
        centres = 10 ** draw.uniform(low, 0, 4)
        values = draw.choice(centres, size) * (1 + 1e-3 * draw.normal(size=size))
    if law == 3:
        values[: int(draw.uniform(0, 0.6) * size)] = 0.0
    if law == 4:
        values = draw.gamma(draw.uniform(0.2, 3), size=size)
    outliers = int(draw.integers(0, 5))
    values[size - outliers :] *= 10 ** draw.uniform(0, 3)
    if draw.random() < 0.4:
        part = draw.random(size) < draw.uniform(0, 0.5)
        values[part] *= -(10 ** draw.uniform(-5, 0))
    return values * 10 ** draw.uniform(-3, 3)


def network(draw: np.random.Generator) -> dict[str, Any]:
    """Draw the stages of a small network and of its dense matrix."""
    activation = str(draw.choice(["tanh", "gelu", "sigmoid"]))
    hidden = [int(draw.integers(2, 7)) for _ in range(draw.integers(1, 3))]
    digits = draw.random() < 0.3
    data = {"use": "data.digits", "num_train": 100} if digits else {"use": "data.xor"}
    return {
        "data": data,
        "fit": {
            "use": "train",
            "data": "data",
            "model": {
                "kind": "mlp",
                "hidden": hidden[:1] if digits else hidden,
                "activation": activation,
            },
            "rule": {"rule": "sgd", "lr": 0.1},
            "seed": int(draw.integers(1000)),
            "epochs": int(draw.integers(1, 40)),
            "keep_preconditioner": True,
            "checkpoints": {"every": 13},
        },
    }


def graph(draw: np.random.Generator) -> dict[str, Any]:
    """Draw the parameters of a random graph."""
    size = int(draw.integers(30, 200))
    joined = float(draw.uniform(1, 12)) / size
    blocks = [int(draw.integers(10, 60)) for _ in range(draw.integers(2, 5))]
    clusters = {"model": "erdos_renyi", "count": 3, "size": 30, "p": 0.3}
    laws: list[dict[str, Any]] = [
        {"model": "erdos_renyi", "n": size, "p": joined},
        {"model": "watts_strogatz", "n": size, "k": 4, "p": float(draw.random())},
        {"model": "barabasi_albert", "n": size, "m": int(draw.integers(1, 5))},
        {"model": "random_regular", "n": 2 * (size // 2), "d": 3},
        {
            "model": "stochastic_block",
            "sizes": blocks,
            "probabilities": (0.02 + 0.3 * np.eye(len(blocks))).tolist(),
        },
        {
            "model": "planted_clusters",
            "clusters": [clusters],
            "links": int(draw.integers(9)),
        },
        {"model": "grid", "dim": [int(draw.integers(3, 12)), 9]},
        {"model": "star", "n": size},
    ]
    return {"use": "data.random_graph", **laws[draw.integers(len(laws))]}


def functionals(draw: np.random.Generator, operator: str) -> dict[str, Any]:
    """Draw the spectrum of a graph, and take all functionals of it that it tells."""
    of_any, above_zero = FUNCTIONALS[operator]
    is_apart = above_zero and draw.random() < 0.5
    spectrum: dict[str, Any] = {
        "use": "probe.spectrum",
        "num_runs": int(draw.integers(3, 12)),
        "num_steps": int(draw.integers(4, 40)),
        **({"deflate": ["components"]} if is_apart else {}),
    }
    taken = {
        "use": "probe.graph_functionals",
        "operator": operator,
        "functionals": of_any + (above_zero if is_apart else []),
    }
    exact = f"spectrum{EXACT}"
    return {
        "spectrum": spectrum,
        exact: {**spectrum, "num_steps": LONG},
        "functionals": {**taken, "ritz": "spectrum"},
        f"functionals{EXACT}": {**taken, "ritz": exact},
    }


def probes(
    draw: np.random.Generator, size: int, least: float, *, operator: str | None
) -> dict[str, Any]:
    """Draw the parameters of each kind that takes an operator.

    Args:
        draw: random numbers.
        size: D, or a number that is not above it.
        least: an eigenvalue that damping mostly makes positive.
        operator: which matrix of a network; None if it is of none.

    Returns:
        Stages by name, without what they take.
    """
    floor = -least * draw.uniform(0.9, 2) if least < 0 else 0.0
    runs, steps = int(draw.integers(3, 16)), int(draw.integers(3, min(60, size) + 1))
    vectors = {"num_runs": runs, "num_steps": steps}
    law = {"distribution": str(draw.choice(["rademacher", "gaussian"]))}
    methods = ["slq", "chebyshev", "meme", "preconditioned_slq", "preconditioned_meme"]
    method = str(draw.choice(methods))
    count = int(draw.integers(8, 40))
    stages = {
        "trace": {
            "use": "probe.trace",
            "method": str(draw.choice(["hutchinson", "hutch++", "xtrace"])),
            "num_probes": count,
            **law,
        },
        "dimension": {
            "use": "probe.effective_dimension",
            "prior_precision": sorted(float(10**e) for e in draw.uniform(-6, 2, 3)),
            **vectors,
            **law,
        },
        "logdet": {
            "use": "probe.logdet",
            "method": method,
            "damping": float(floor + 10 ** draw.uniform(-6, 1)),
            **(
                {"rank": int(draw.integers(2, 30))}
                if "preconditioned" in method
                else {}
            ),
            **vectors,
            **law,
        },
        "moments": {
            "use": "probe.moments",
            "basis": str(draw.choice(["power", "chebyshev"])),
            "num_moments": int(draw.integers(1, 9)),
            "num_probes": count,
            **law,
        },
        "masses": {"use": "probe.spectrum", **vectors, **law},
    }
    if operator == "hessian":
        stages["plain"] = {"use": "probe.hessian_trace", "num_probes": count, **law}
        stages["edge"] = {"use": "probe.sharpness"}
    for name in ("dimension", "logdet"):
        stages[f"{name}{EXACT}"] = exact_rule(stages[name])
    stages["norm"] = {"use": "probe.squared_norm", "num_probes": count, **law}
    stages["top"] = {
        "use": "probe.eigenvalues",
        **eigenvalues(draw),
        "k": int(draw.integers(1, 6)),
        "tol": float(10 ** draw.uniform(-8, -1)),
    }
    stages["orders"] = {
        "use": "probe.moments",
        "basis": "chebyshev",
        "num_moments": int(draw.integers(2, 40)),
        "num_probes": count,
        **law,
    }
    kernel = str(draw.choice(["jackson", "none"]))
    stages["kpm"] = {"use": "probe.kpm", "moments": "orders", "kernel": kernel}
    stages["maxent"] = {"use": "probe.maxent", "moments": "orders"}
    if operator in SEPARABLE:
        apart = {
            "probes_per": "batch",
            "batch_size": int(draw.integers(1, 20)),
            "num_probes": int(draw.integers(16, 120)),
            **law,
        }
        stages["apart"] = {"use": "probe.trace", **apart}
        batches = {"num_batches": int(draw.integers(2, 9))}
        stages["norm_apart"] = {"use": "probe.squared_norm", **apart, **batches}
    return stages


def eigenvalues(draw: np.random.Generator) -> dict[str, str]:
    """Draw which eigenvalues are wanted, and a method that can find them."""
    method = str(draw.choice(["power", "lanczos", "lobpcg"]))
    ends = {"power": ["LM"], "lanczos": ["LM", "LA", "SA"], "lobpcg": ["LA", "SA"]}
    return {"method": method, "which": str(draw.choice(ends[method]))}


def beyond(draw: np.random.Generator, operator: str, samples: int) -> dict[str, Any]:
    """Draw the parameters of kinds whose truth is of more than the eigenvalues.

    Args:
        draw: random numbers.
        operator: which matrix of a network.
        samples: of the network's data.

    Returns:
        Stages by name, without what they take.
    """
    law = {"distribution": str(draw.choice(["rademacher", "gaussian"]))}
    batch = int(draw.integers(1, samples // 2 + 1))
    batches = int(draw.integers(2, samples // batch + 1))
    curvature = str(draw.choice(["hessian", "ggn"]))
    structure = str(draw.choice(STRUCTURES))
    stages: dict[str, Any] = {
        "entries": entries(draw),
        "noise": {
            "use": "probe.gradient_variance",
            "num_samples": int(draw.integers(2, samples)),
        },
        "bends": {
            "use": "probe.hessian_variance",
            "operator": curvature,
            "batch_size": batch,
            "num_batches": min(batches, 8),
            "num_probes": int(draw.integers(8, 40)),
            **law,
        },
        "tracked": {
            "use": "probe.eigenvalue_tracking",
            **eigenvalues(draw),
            "k": int(draw.integers(1, 4)),
            "tol": float(10 ** draw.uniform(-8, -1)),
        },
        "factors": {"use": "probe.factors", "structure": structure},
        "far": {
            "use": "probe.factor_error",
            "operator": str(draw.choice(["ggn", "fisher_empirical", "hessian"])),
            "num_probes": int(draw.integers(8, 40)),
            "dampings": [float(10**e) for e in draw.uniform(-4, 0, 2)],
            "num_runs": int(draw.integers(3, 10)),
            "num_steps": int(draw.integers(4, 30)),
        },
    }
    if operator in SEPARABLE:
        apart = {"probes_per": "batch", "batch_size": int(draw.integers(1, 20)), **law}
        stages["entries_apart"] = {
            "use": "probe.diagonal",
            "num_probes": int(draw.integers(16, 120)),
            **apart,
        }
    if operator == "hessian":
        stages |= {
            "chains": {
                "use": "probe.llc",
                "num_draws": 10,
                "num_chains": 2,
                "num_steps_bw_draws": 1,
            },
            "regular": {"use": "probe.llc_regular", "ritz": "masses"},
            f"regular{EXACT}": {"use": "probe.llc_regular", "ritz": f"masses{EXACT}"},
            "energy": {"use": "probe.free_energy", "ritz": "masses"},
            f"energy{EXACT}": {"use": "probe.free_energy", "ritz": f"masses{EXACT}"},
        }
    return stages


def entries(draw: np.random.Generator) -> dict[str, Any]:
    """Draw the parameters of a diagonal by vectors for all data."""
    return {
        "use": "probe.diagonal",
        "num_probes": int(draw.integers(8, 40)),
        "distribution": str(draw.choice(["rademacher", "gaussian"])),
    }


def clusters(draw: np.random.Generator, seed: int) -> dict[str, Any]:
    """Draw a graph of planted clusters, and counts of these by each method.

    Args:
        draw: random numbers.
        seed: of the graph and of the vectors.

    Returns:
        Whole stages by name, all of PLANTED.
    """
    group = {
        "model": "erdos_renyi",
        "count": int(draw.integers(2, 9)),
        "size": int(draw.integers(12, 30)),
        "p": float(draw.uniform(0.2, 0.7)),
    }
    of = {"graph": PLANTED, "operator": "normalized_laplacian"}
    runs = {
        "num_runs": int(draw.integers(3, 20)),
        "num_steps": int(draw.integers(8, 50)),
    }
    orders = {"num_moments": int(draw.integers(20, 80)), "support": [0.0, 2.0]}
    least = {"least_gap": float(10 ** draw.uniform(-2, -0.7))}
    counts = {
        "slq": {"ritz": f"{PLANTED}_spectrum"},
        "smoothed_lanczos": {"ritz": f"{PLANTED}_spectrum"},
        "maxent": {"density": f"{PLANTED}_density"},
    }
    return {
        PLANTED: {
            "use": "data.random_graph",
            "model": "planted_clusters",
            "clusters": [group],
            "links": int(draw.integers(20)),
            "seed": seed,
        },
        f"{PLANTED}{EXACT}": {"use": "probe.dense", **of},
        f"{PLANTED}_spectrum": {"use": "probe.spectrum", **of, **runs, "seed": seed},
        f"{PLANTED}_moments": {"use": "probe.moments", **of, **orders, "seed": seed},
        f"{PLANTED}_density": {
            "use": "probe.maxent",
            "moments": f"{PLANTED}_moments",
        },
        **{
            f"{PLANTED}_{method}": {
                "use": "probe.cluster_count",
                "method": method,
                **least,
                **taken,
            }
            for method, taken in counts.items()
        },
    }


def exact_rule(stage: dict[str, Any]) -> dict[str, Any]:
    """Return a probe of the same vectors whose rules are exact."""
    steps = {**stage, "num_steps": LONG}
    if "method" in stage:
        is_plain = "preconditioned" not in stage["method"]
        steps["method"] = "slq" if is_plain else "preconditioned_slq"
    return steps


def cases(seed: int, only: str | None) -> Iterator[int]:
    """Yield seeds of cases.

    Args:
        seed: of these.
        only: the sort of cases that is kept; None for all.
    """
    draw = np.random.default_rng(seed)
    while True:
        case = int(draw.integers(2**31))
        if only in (None, sort_of(np.random.default_rng(case))):
            yield case


def sort_of(draw: np.random.Generator) -> str:
    """Draw what a case is about."""
    law = draw.random()
    return next(sort for sort, share in SORTS.items() if law <= share)


def study(case: int) -> tuple[dict[str, Any], np.ndarray | None]:
    """Return the study of a case, and its eigenvalues if they are drawn."""
    draw = np.random.default_rng(case)
    sort, seed = sort_of(draw), case % 2**31
    if sort == "posteriors":
        return {"study": f"truth-{case}", "stages": posterior(draw)}, np.zeros(0)
    stages: dict[str, Any] = {}
    values = None
    if sort == "networks":
        operator = str(draw.choice(OPERATORS))
        stages, of = network(draw), {"weights": "fit", "operator": operator}
        drawn = probes(draw, 60, -0.3, operator=operator)
        drawn |= beyond(draw, operator, stages["data"].get("num_train", CORNERS))
        if operator == "hessian":
            drawn[f"masses{EXACT}"] = exact_rule(drawn["masses"])
    elif sort == "graphs":
        operator = str(draw.choice(list(FUNCTIONALS)))
        stages["graph"] = {**graph(draw), "seed": seed}
        of = {"graph": "graph", "operator": operator}
        least = -10.0 if operator == "adjacency" else 0.0
        drawn = probes(draw, 30, least, operator=None) | functionals(draw, operator)
    else:
        values, of = spectrum(draw), {"matrix": "matrix"}
        stages["matrix"] = {
            "use": "data.random_matrix",
            "ensemble": "eigenvalues",
            "eigenvalues": [float(v) for v in values],
            "seed": seed,
        }
        drawn = probes(draw, len(values), values.min(), operator=None)
        drawn["entries"] = entries(draw)
    if values is None:
        stages["exact"] = {"use": "probe.dense", **of}
    for name, stage in drawn.items():
        stages[name] = {**stage, **beside(stage, of, seed)}
    if sort == "graphs":
        stages |= clusters(draw, seed)
    return {"study": f"truth-{case}", "stages": stages}, values


def repeated(stages: Stages, kind: str, times: int) -> Stages:
    """Return the stages of one kind, each by several seeds, and what they need.

    Those that draw nothing read probes that do, which are by several seeds then.

    Args:
        stages: of a case.
        kind: of those that are kept.
        times: seeds.
    """
    kept: Stages = {}
    for name, stage in stages.items():
        if stage["use"] == kind:
            for number in range(times):
                _keep(kept, stages, name, number)
    exact = [one for one, stage in stages.items() if stage["use"] == "probe.dense"]
    for one in exact if kept else ():
        kept |= {each: stages[each] for each in (one, *_upstream(stages[one], stages))}
    return kept


def _keep(kept: Stages, stages: Stages, name: str, number: int) -> str:
    """Keep a stage by another seed, with its inputs; return its name."""
    stage = dict(stages[name])
    if "seed" in stage:
        stage["seed"] = (stage["seed"] + number * APART) % 2**31
    else:
        for key, value in _inputs(stage).items():
            if stages[value]["use"].startswith("probe."):
                stage[key] = _keep(kept, stages, value, number)
    begins = name.removesuffix(EXACT)
    copy = f"{begins}_{number}{name.removeprefix(begins)}"
    kept.update({one: stages[one] for one in _upstream(stage, stages)})
    kept[copy] = stage
    return copy


def _upstream(stage: dict[str, Any], stages: Stages) -> Iterator[str]:
    """Yield the stages that one needs, and those that they need."""
    for value in _inputs(stage).values():
        if value in stages:
            yield value
            yield from _upstream(stages[value], stages)


def _inputs(stage: dict[str, Any]) -> dict[str, str]:
    """Return the stages that are inputs of one, by input."""
    inputs = find_kind(stage["use"]).inputs
    return {name: value for name, value in stage.items() if name in inputs}


def beside(
    stage: dict[str, Any], of: dict[str, str], seed: int
) -> dict[str, str | int]:
    """Return what a probe has beside its drawn parameters: inputs, and a seed.

    Args:
        stage: its drawn parameters.
        of: the operator.
        seed: of the random vectors.
    """
    use = stage["use"]
    if use in OF_DRAWS:
        return {"draws": "chains"}
    if "moments" in stage or "ritz" in stage:
        return {}
    if use == "probe.factors":
        return {"weights": "fit"}
    if use == "probe.factor_error":
        return {"factors": "factors", "seed": seed}
    if use == "probe.eigenvalue_tracking":
        return {"trajectory": "fit", "operator": of["operator"], "seed": seed}
    return {**({"weights": "fit"} if use in OF_LOSS else of), "seed": seed}
