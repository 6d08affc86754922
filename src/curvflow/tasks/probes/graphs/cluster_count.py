"""Numbers of clusters of graphs, from their stored spectra."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import cast

import numpy as np
import torch

from curvflow.errors import InputError
from curvflow.schemas.kinds.probes.graphs.cluster_count import ClusterCountParams
from curvflow.schemas.nodes import Array, Member, NodeData, Outcome
from curvflow.tasks.curvature.operators import atoms_of
from curvflow.tasks.curvature.ritz_data import functional_arrays, without_atoms
from curvflow.tasks.networks.problems import Apart, grouped
from curvflow.tasks.numerics.estimators.intervals import student_interval
from curvflow.tasks.numerics.graphs.density_gaps import (
    FEW,
    EntropicDensity,
    SmoothedSpectrum,
    smoothing_bytes,
)
from curvflow.tasks.numerics.graphs.gaps import (
    Gap,
    LowestEigenvalues,
    atoms_below,
    count_below,
    count_interval,
    is_clear,
    scan_bytes,
    spectral_gap,
)
from curvflow.tasks.numerics.graphs.structure import components
from curvflow.tasks.numerics.krylov.functionals import Bounded
from curvflow.tasks.numerics.krylov.lanczos import RitzData
from curvflow.tasks.numerics.krylov.quadrature import is_all_eigenvalues
from curvflow.tasks.numerics.operators.deflation import Atoms
from curvflow.tasks.registry import Machine, computes

# Part of an eigenvalue that a rule may be off and still have counted.
ENOUGH = 0.01

# How far the end of a support may be off by rounding.
ROUNDING = 1e-9


def member_bytes(member: Member) -> int:
    """Return one member's estimated peak memory."""
    params = cast("ClusterCountParams", member.params)
    if params.method == "maxent":
        node = member.one("density")
        return 8 * 8 * len(node["grid"]) * (1 + len(node["multipliers"]))
    adjacency = _components_bytes(member.one("graph"))
    if params.method == "eigengap":
        return adjacency + 16 * member.one("eigenvalues")["eigenvalues"].nbytes
    runs, steps = member.one("ritz")["ritz_values"].shape
    if params.method == "smoothed_lanczos":
        scan = smoothing_bytes(runs, steps, least=params.least_gap)
    else:
        scan = scan_bytes(steps, least=params.least_gap)
    return scan + adjacency


def _components_bytes(graph: NodeData) -> int:
    """Return the bytes of a graph, and of what finds its components."""
    stored = sum(array.nbytes for array in graph.arrays.values())
    # SciPy takes a number for each entry, and 32 bits for the beginnings of rows.
    return stored + 8 * len(graph["indices"]) + 12 * len(graph["indptr"])


@computes("probe.cluster_count", member_bytes=member_bytes)
def cluster_count(members: Sequence[Member], machine: Machine) -> list[Outcome]:
    """Count the eigenvalues below a gap.

    Args:
        members: with `ritz` or `eigenvalues`, and the `graph` that they are of, or with
            a `density`.
        machine: not used: the problem is small.

    Returns:
        Per member the count with its errors, the gap, and a verdict.

    Raises:
        InputError: a density or eigenvalues lack what is needed.

    Reference:
        Granziol (2020), Algorithm 5, by the rules themselves in place of a density.
    """
    return grouped(members, lambda member: Apart(id(member)), _of_one)


def _of_one(members: Sequence[Member]) -> list[Outcome]:
    return [_of_member(members[0])]


def _of_member(member: Member) -> Outcome:
    params = cast("ClusterCountParams", member.params)
    if params.method == "maxent":
        return _by_density(member, params)
    if params.method == "eigengap":
        return _by_eigenvalues(member, params)
    ritz, atoms = without_atoms([member]), atoms_of(member.one("ritz"))
    size = ritz.size + atoms.total
    num_components = _components(member.one("graph"), size)
    gap, counted = _by_ritz(params, ritz, atoms)
    count = functional_arrays("count", counted)
    count["converged"] = count["converged"] | (count["count_quadrature"] <= ENOUGH)
    depth = float((counted.upper - counted.lower).mean())
    known = float(atoms_below(atoms, torch.tensor([_point(gap)]).double()))
    ends = count_interval(counted, ritz.size, known, is_exact=is_all_eigenvalues(ritz))
    least, most = (end.numpy() for end in ends)
    count["count_low"] = np.fmin(count["count_low"], least)
    count["count_high"] = np.fmax(count["count_high"], most)
    if params.method != "bethe_hessian":  # each of these is an eigenvalue of zero
        for end in ("count_low", "count_high"):
            count[end] = np.maximum(count[end], num_components)
    answer = _arrays(gap, count, depth, size)
    return Outcome({**answer, "components": num_components})


def _by_ritz(
    params: ClusterCountParams, ritz: RitzData, atoms: Atoms
) -> tuple[Gap, Bounded]:
    """Return the gap, and the eigenvalues below it; of no use without one."""
    if params.method == "smoothed_lanczos":
        smoothed = SmoothedSpectrum(ritz, params.kernel_width, atoms)
        gap = smoothed.gap(params.least_gap)
        count = smoothed.count_below(_point(gap))
    elif params.method == "slq":
        gap = spectral_gap(ritz, least=params.least_gap, atoms=atoms)
        count = count_below(ritz, _point(gap), atoms=atoms)
    else:
        count = count_below(ritz, 0.0, atoms=atoms)
        gap = Gap("gap", at=0.0) if is_clear(count) else Gap("unresolved")
    return gap, count.of_model(0)


def _point(gap: Gap) -> float:
    return gap.at if gap.verdict == "gap" else 0.0


def _by_eigenvalues(member: Member, params: ClusterCountParams) -> Outcome:
    node = member.one("eigenvalues")
    if node["iterations"] == 0:
        raise InputError(
            f"eigenvalues: expected computed ones, got those that '{node.stage}' read "
            "of Ritz data, where repeated ones stand once. Give it the graph."
        )
    if "columns" not in node:
        raise InputError(
            "eigenvalues: expected them with how often a repeated one is found, got "
            f"those that '{node.stage}' stored before that was kept. Compute it again."
        )
    size = int(node["size"])
    num_components = _components(member.one("graph"), size)
    lowest = LowestEigenvalues.of(
        node["eigenvalues"],
        node["residuals"],
        size=size,
        columns=int(node["columns"]),
        zeros=int(num_components),
    )
    gap = lowest.gap(params.least_gap)
    is_below = node["eigenvalues"] < gap.at
    number = np.array(float(is_below.sum()))
    arrays: dict[str, Array] = {
        **dict.fromkeys(("count", "count_low", "count_high"), number),
        **dict.fromkeys(("count_sem", "count_vectors"), np.array(0.0)),
        "converged": np.array(node["converged"][is_below].all()),
    }
    answer = _arrays(gap, arrays, 0.0, size)
    return Outcome({**answer, "components": num_components})


def _by_density(member: Member, params: ClusterCountParams) -> Outcome:
    node = member.one("density")
    if "multipliers_covariance" not in node:
        raise InputError(
            "density: expected one with the covariance of its multipliers, got one "
            f"that '{node.stage}' stored before that was kept. Compute it again."
        )
    atoms = atoms_of(node)
    density = EntropicDensity(
        points=torch.as_tensor(node["grid"]),
        masses=torch.as_tensor(node["mass"]),
        size=int(node["size"]) - atoms.total,
        covariance=torch.as_tensor(node["multipliers_covariance"]),
        basis=str(node["basis"].item()),
        basis_support=_support(node),
        atoms=atoms,
        bounds=_bounds(node),
    )
    gap, held = density.gap(params.least_gap)
    count, sem = density.count_below(gap.at)
    freedom = torch.as_tensor(node.arrays.get("num_draws", np.array(np.inf))) - 1
    low, high = student_interval(count, sem, freedom)
    # What a gap may hold belongs to either side of it.
    arrays = {
        "count": count.numpy(),
        "count_sem": sem.numpy(),
        "count_vectors": sem.numpy(),
        "count_low": (low - FEW).clamp_min(0).numpy(),
        "count_high": (high + FEW).numpy(),
        "converged": node["converged"],
    }
    return Outcome(_arrays(gap, arrays, held, int(node["size"])))


def _bounds(node: NodeData) -> tuple[torch.Tensor, torch.Tensor] | None:
    """Return bounds of the counts below the points of a density, and up to them."""
    names = ("cumulative_low", "cumulative_high")
    if not all(name in node for name in names):
        return None  # stored before they were kept
    size = int(node["size"])
    below_G, upto_G = (size * torch.as_tensor(node[name]) for name in names)
    return below_G, upto_G


def _support(node: NodeData) -> tuple[float, float]:
    """Return the interval of a density's polynomials.

    Raises:
        InputError: it is no interval of the normalized Laplacian's spectrum.
    """
    low, high = map(float, node["basis_support"])
    if low < -ROUNDING or high > 2 + ROUNDING:
        raise InputError(
            "density: expected one of the normalized Laplacian, from 0 to 2, got one "
            f"from {low:g} to {high:g}. Set support to [0, 2] in its probe.moments."
        )
    return low, high


def _arrays(
    gap: Gap, count: Mapping[str, Array], depth: float, size: int
) -> dict[str, Array]:
    """Return the variables of a count; without a gap there is no number."""
    if gap.verdict != "gap":
        none = {name: np.full_like(array, np.nan) for name, array in count.items()}
        count, depth = {**none, "converged": np.array(False)}, np.nan
    return {
        "verdict": np.array(gap.verdict),
        **count,
        "gap_low": np.array(gap.low),
        "gap_high": np.array(gap.high),
        "gap_at": np.array(gap.at),
        "gap_depth": np.array(depth),
        "size": np.array(size, dtype=np.int64),
    }


def _components(graph: NodeData, size: int) -> Array:
    """Return the components of all nodes, or of the `size` that have edges."""
    labels = components(graph["indptr"], graph["indices"])
    return np.array(labels.max() + 1 - (len(labels) - size), dtype=np.int64)
