"""Probes without known eigenvalues tell the whole spectrum, with smaller errors."""

import networkx as nx
import numpy as np
import pytest
from scipy import sparse

import curvflow
from curvflow.errors import InputError
from curvflow.schemas.kinds import find_kind
from curvflow.schemas.kinds.shared.deflation import OF_COMPONENTS
from curvflow.schemas.kinds.shared.graphs import graph
from curvflow.schemas.nodes import Graph, Member, Moments, Ritz
from curvflow.tasks import registry
from curvflow.tasks.curvature import operators
from curvflow.tasks.numerics.operators.deflation import COMPONENTS
from curvflow.tasks.registry import Machine
from tests.tasks.numerics.operators.test_graphs import NAMES, twin
from tests.tasks.probes.graphs.test_graph_structure import drawn

BOTH = ("components", "twins")


def member(kind, W, **settings):
    rows = sparse.csr_array(W)
    weights = None if (rows.data == 1).all() else rows.data
    node = Graph(
        "graph", "data.graph", {}, graph(rows.indptr, rows.indices, weights), ""
    )
    return Member(find_kind(kind).params(**settings), {"graph": [node]})


def computed(kind, given):
    (outcome,) = registry.find(kind).compute([given], Machine())
    return outcome.arrays


def of(kind, **taken):
    """Return a member that takes results of other probes."""
    settings = taken.pop("settings", {})
    return Member(find_kind(kind).params(**settings), taken)


def result(edge, kind, W, **settings):
    """Return what a probe of a graph gives, as others take it."""
    return edge("it", kind, {}, computed(kind, member(kind, W, **settings)), "")


def chebyshev(eigenvalues, support, orders):
    low, high = support
    inside = (2 * eigenvalues - low - high) / (high - low)
    return np.polynomial.chebyshev.chebvander(inside, orders - 1).mean(0)


def test_operators_of_components_are_the_same_in_both_halves():
    assert set(OF_COMPONENTS) == set(COMPONENTS)


@pytest.mark.parametrize("name", [n for n in NAMES if n != "bethe_hessian"])
def test_totals_are_those_of_the_whole_matrix(name):
    what = BOTH if name in OF_COMPONENTS else ("twins",)
    for seed in range(3):
        W = drawn(seed, weighted=True, loops=True)
        exact = np.linalg.eigvalsh(twin(W, name))
        settings = {"operator": name, "deflate": what, "seed": seed}
        runs = member("probe.spectrum", W, num_runs=40, num_steps=14, **settings)
        found = computed("probe.spectrum", runs)
        total = (found["size"], found["ritz_values"].shape[1])
        assert total == (14, min(14, 14 - found["atom_counts"].sum()))
        assert abs(found["trace"] - exact.sum()) < 5 * found["trace_sem"]
        ends = (found["smallest"], found["largest"])
        np.testing.assert_allclose(ends, exact[[0, -1]], atol=1e-10)
        zero = (np.abs(exact) <= found["zero_threshold"]).mean()
        assert found["zero_mass_low"] <= zero + 1e-12
        assert zero - 1e-12 <= found["zero_mass_high"]
        for basis in ("power", "chebyshev"):
            given = member(
                "probe.moments",
                W,
                num_moments=5,
                num_probes=60,
                basis=basis,
                **settings,
            )
            of_vectors = computed("probe.moments", given)
            ritz = [Ritz("s", "probe.spectrum", {}, found, "")]
            few = {"num_moments": 5, "basis": basis}
            of_runs = of("probe.moments", settings=few, ritz=ritz)
            for got in (of_vectors, computed("probe.moments", of_runs)):
                expected = (exact[:, None] ** np.arange(6)).mean(0)
                if basis == "chebyshev":
                    expected = chebyshev(exact, got["support"], 6)
                apart = np.abs(got["moments"] - expected)
                assert (apart <= 5 * got["moments_sem"] + 1e-9).all()
                draws = got["moment_draws"].mean(0)
                np.testing.assert_allclose(
                    draws, got["moments"], rtol=1e-12, atol=1e-12
                )
                assert abs(got["trace"] - exact.sum()) < 5 * got["trace_sem"]


def test_a_star_forest_is_exact():
    forest = nx.disjoint_union_all([nx.star_graph(k) for k in (2, 4, 7, 9)])
    W = nx.to_numpy_array(forest)
    exact = nx.normalized_laplacian_spectrum(forest)
    found = computed("probe.spectrum", member("probe.spectrum", W, deflate=BOTH))
    assert found["atom_values"].tolist() == [0, 1]
    assert found["atom_counts"].tolist() == [4, 18]
    np.testing.assert_allclose(found["ritz_values"][:, 0], 2, rtol=1e-14)
    assert found["trace"] == pytest.approx(exact.sum(), rel=1e-13)
    assert found["zero_mass"] == pytest.approx(4 / 26, rel=1e-13)
    assert (found["smallest"], found["smallest_residual"]) == (0, 0)
    given = member("probe.moments", W, deflate=BOTH, support=(0.0, 2.0))
    moments = computed("probe.moments", given)
    expected = chebyshev(exact, (0, 2), 31)
    np.testing.assert_allclose(moments["moments"], expected, atol=1e-12)
    assert moments["moments_sem"].max() < 1e-12


def test_the_cumulative_of_a_tree_is_better_next_to_its_atom():
    squares = {(): 0.0, BOTH: 0.0}
    for seed in range(2):
        tree = nx.barabasi_albert_graph(300, 1, seed=seed)
        exact = nx.normalized_laplacian_spectrum(tree)
        x = 1 + np.array([-0.01, -0.005, 0.005, 0.01])
        expected = (exact[:, None] <= x).mean(0)
        for deflate in squares:
            settings = {"num_moments": 20, "num_probes": 20, "support": (0.0, 2.0)}
            W = nx.to_numpy_array(tree)
            settings |= {"seed": seed, "deflate": deflate}
            moments = result(Moments, "probe.moments", W, **settings)
            atoms = {"atoms": "apart" if deflate else "within"}
            density = computed(
                "probe.maxent", of("probe.maxent", moments=[moments], settings=atoms)
            )
            rest = (density["mass"][:, None] * (density["grid"][:, None] <= x)).sum(0)
            if deflate:
                values, counts = density["atom_values"], density["atom_counts"]
                known = (counts[:, None] * (values[:, None] <= x)).sum(0)
                rest = (known + (300 - counts.sum()) * rest) / 300
            squares[deflate] += ((rest - expected) ** 2).sum()
    assert squares[()] > 3**2 * squares[BOTH]


def test_atoms_within_a_density_are_those_of_all_moments():
    W = drawn(1)
    given = computed("probe.moments", member("probe.moments", W, deflate=BOTH))
    plain = {name: a for name, a in given.items() if not name.startswith("atom_")}
    within, without = (
        computed(
            "probe.maxent", of("probe.maxent", moments=[Moments("", "", {}, m, "")])
        )
        for m in (given, plain)
    )
    np.testing.assert_array_equal(within["density"], without["density"])


def apart_without_atoms():
    moments = [result(Moments, "probe.moments", drawn(1))]
    of_moments = of("probe.maxent", moments=moments, settings={"atoms": "apart"})
    computed("probe.maxent", of_moments)


def beyond_the_support():
    result(Moments, "probe.moments", drawn(1), deflate=BOTH, support=(0.5, 3.0))


def in_a_logdet():
    ritz = [result(Ritz, "probe.spectrum", drawn(1), deflate=BOTH)]
    computed("probe.logdet", of("probe.logdet", ritz=ritz))


def of_a_matrix_in_memory():
    curvflow.from_graph(drawn(1)).spectrum(deflate=BOTH)


@pytest.mark.parametrize(
    ("compute", "message"),
    [
        (apart_without_atoms, r"^atoms: expected moments with eigenvalues taken out"),
        (beyond_the_support, r"^support: .* holds the eigenvalues taken out"),
        (in_a_logdet, r"^ritz: expected Ritz data of all eigenvalues"),
        (of_a_matrix_in_memory, r"^deflate: expected a graph"),
    ],
)
def test_atoms_are_never_passed_over_in_silence(compute, message):
    with pytest.raises(InputError, match=message):
        compute()


def test_bits_of_a_deflated_graph_do_not_depend_on_its_tile():
    one, other = (
        member("probe.spectrum", drawn(s), deflate=BOTH, num_runs=2) for s in (0, 1)
    )
    compute = registry.find("probe.spectrum").compute
    (alone,) = compute([one], Machine())
    for tile in ([one, one], [other, one]):
        beside = compute(tile, Machine())[-1]
        for name, array in alone.arrays.items():
            assert array.tobytes() == beside.arrays[name].tobytes()


def test_memory_counts_what_finds_the_atoms():
    plain, without = (
        member("probe.spectrum", drawn(1), deflate=deflate) for deflate in ((), BOTH)
    )
    more = operators.product_bytes(without, 4) - operators.product_bytes(plain, 4)
    assert more > 40 * len(plain.one("graph")["indices"])
