"""Clusters are counted where a spectrum has a gap, and nowhere else."""

import networkx as nx
import numpy as np
import pytest
import torch
from scipy import stats

import curvflow
from curvflow.errors import InputError, StudyError
from curvflow.schemas.kinds.probes.graphs.cluster_count import ClusterCountParams
from curvflow.schemas.nodes import Entropic, Member, Moments, NodeData, Ritz
from curvflow.schemas.study.study import load_study
from curvflow.tasks.numerics.graphs.density_gaps import (
    EntropicDensity,
    SmoothedSpectrum,
)
from curvflow.tasks.numerics.graphs.gaps import (
    LowestEigenvalues,
    count_below,
    is_clear,
    spectral_gap,
)
from curvflow.tasks.numerics.krylov.lanczos import lanczos
from curvflow.tasks.numerics.operators.base import Dense
from curvflow.tasks.probes.graphs.cluster_count import cluster_count
from curvflow.tasks.registry import Machine
from tests.tasks.probes.graphs.test_deflated_probes import (
    BOTH,
    computed,
    member,
    of,
    result,
)

LEAST = 0.03


def planted(groups, size, links, seed):
    """Return dense groups that some edges join."""
    rng = np.random.default_rng(seed)
    parts = [
        nx.gnp_random_graph(size, 0.5, seed=int(rng.integers(1e6)))
        for _ in range(groups)
    ]
    G = nx.disjoint_union_all(parts)
    G.add_edges_from(map(tuple, rng.integers(0, groups * size, (links, 2))))
    G.remove_edges_from(list(nx.selfloop_edges(G)))
    return G


def runs(G, num_steps, *, num_runs=10, seed=0):
    A = torch.as_tensor(nx.normalized_laplacian_matrix(G).toarray())
    draws = torch.Generator().manual_seed(seed)
    shape = (len(G), num_runs)
    starts = torch.randint(0, 2, shape, generator=draws).double() * 2 - 1
    return lanczos(Dense(A.double()), starts, num_steps=num_steps)


@pytest.mark.parametrize(
    ("G", "num_steps", "verdict"),
    [
        (nx.random_regular_graph(3, 200, seed=1), 30, "gap"),
        (nx.complete_graph(30), 5, "gap"),
        (nx.star_graph(40), 5, "gap"),
        (nx.disjoint_union_all([nx.path_graph(2)] * 20), 5, "gap"),
        (nx.grid_2d_graph(25, 25), 45, "no gap"),
        (nx.path_graph(300), 45, "no gap"),
        (nx.grid_2d_graph(25, 25), 10, "unresolved"),
        (nx.random_regular_graph(3, 200, seed=1), 6, "unresolved"),
    ],
    ids=lambda given: str(given).replace(" ", "-"),
)
def test_a_verdict_is_that_of_the_spectrum(G, num_steps, verdict):
    gap = spectral_gap(runs(G, num_steps), least=LEAST)
    assert gap.verdict == verdict
    assert np.isnan(gap.at) == (verdict != "gap")


def test_no_verdict_on_random_spectra_is_wrong():
    told = {"gap": 0, "no gap": 0, "unresolved": 0}
    for seed in range(60):
        rng = np.random.default_rng(seed)
        few = np.sort(rng.uniform(0, rng.choice([0, 0.01, 0.1]), rng.integers(1, 9)))
        few[0] = 0
        start = few[-1] + rng.uniform(0.02, 0.5)
        law = np.linspace if seed % 2 else rng.uniform
        spectrum = np.sort(np.concatenate([few, law(start, 2, 120 - len(few))]))
        below = spectrum[spectrum <= np.median(spectrum)]
        widths, least = np.diff(below), np.maximum(0.1, below[:-1])
        starts = torch.as_tensor(rng.choice([-1.0, 1.0], (120, 10)))
        A, steps = (
            Dense(torch.diag(torch.as_tensor(spectrum))),
            int(rng.choice([8, 40])),
        )
        gap = spectral_gap(lanczos(A, starts, num_steps=steps), least=0.1)
        told[gap.verdict] += 1
        assert gap.verdict != "no gap" or (widths < least).all(), seed
        inside = (gap.low < spectrum) & (spectrum < gap.high)
        assert gap.verdict != "gap" or not inside.any(), seed
        if steps == 40 and (widths > 1.25 * least).any():
            assert gap.verdict == "gap", seed
    assert min(told.values()) >= 5, told


def test_bounds_that_meet_but_for_rounding_do_not_fill_a_gap():
    spectrum = torch.cat([torch.zeros(5), torch.linspace(0.11, 2, 195)]).double()
    draws = torch.Generator().manual_seed(1)
    starts = torch.randint(0, 2, (200, 10), generator=draws).double() * 2 - 1
    runs_of_200 = lanczos(Dense(torch.diag(spectrum)), starts, num_steps=100)
    assert spectral_gap(runs_of_200, least=0.1).verdict == "unresolved"


@pytest.mark.parametrize("seed", range(4))
def test_a_gap_holds_no_eigenvalue_and_the_count_is_that_below_it(seed):
    G = planted(3 + seed, 20, links=4 * seed, seed=seed)
    spectrum = nx.normalized_laplacian_spectrum(G)
    ritz = runs(G, 20, num_runs=12, seed=seed)
    gap = spectral_gap(ritz, least=LEAST)
    assert gap.verdict == "gap"
    assert not ((gap.low < spectrum) & (spectrum < gap.high)).any()
    assert (spectrum < gap.at).sum() == 3 + seed
    found = count_below(ritz, gap.at)
    assert is_clear(found)
    assert abs(float(found.estimate.mean) - 3 - seed) < 4 * float(found.total)


@pytest.mark.parametrize(
    ("G", "num_steps", "verdict", "count"),
    [
        (nx.random_regular_graph(3, 200, seed=1), 30, "gap", 1),
        (nx.complete_graph(30), 5, "gap", 1),
        (nx.disjoint_union_all([nx.path_graph(2)] * 20), 5, "gap", 20),
        (planted(6, 20, links=6, seed=3), 20, "gap", 6),
        (nx.grid_2d_graph(25, 25), 45, "no gap", None),
        (nx.path_graph(300), 60, "no gap", None),
        (nx.grid_2d_graph(25, 25), 10, "unresolved", None),
        (nx.random_regular_graph(3, 200, seed=1), 6, "unresolved", None),
    ],
    ids=lambda given: str(given).replace(" ", "-"),
)
def test_smoothed_ritz_values_tell_the_same(G, num_steps, verdict, count):
    ritz = runs(G, num_steps, num_runs=20)
    smoothed = SmoothedSpectrum(ritz, LEAST / 20)
    gap = smoothed.gap(LEAST)
    assert gap.verdict == verdict
    if count:
        assert gap.low < gap.at < gap.high
        spectrum = nx.normalized_laplacian_spectrum(G)
        assert (spectrum < gap.at).sum() == count
        found, plain = smoothed.count_below(gap.at), count_below(ritz, gap.at)
        # The kernel alone lies between them.
        assert abs(found.estimate.mean - plain.estimate.mean) < 0.01 * count
        assert found.lower.mean() <= count + 4 * float(found.total)
        assert found.upper.mean() >= count - 4 * float(found.total)


def test_a_kernel_moves_counts_by_what_it_leads_across():
    values = torch.tensor([0.0, 0.2, 1.0]).repeat_interleave(torch.tensor([4, 3, 33]))
    A = Dense(torch.diag(values.double()))
    ritz = lanczos(A, torch.ones(40, 1).double(), num_steps=3)
    found = SmoothedSpectrum(ritz, 0.1).count_below(0.3)
    share = [stats.norm.cdf(x) for x in (3, 1, -7)]
    assert float(found.estimate.mean) == pytest.approx(np.dot(share, [4, 3, 33]))
    assert float(found.lower) <= float(found.estimate.mean) < 7 <= float(found.upper)


@pytest.mark.parametrize(
    ("values", "reach", "columns", "zeros", "verdict", "high"),
    [
        ([0, 0.01, 0.4], 1e-9, 2, 1, "gap", 0.4),
        ([0, 0.01, 0.4], 0.2, 2, 1, "unresolved", None),  # residuals meet
        ([0, 0.01, 0.012], 1e-9, 2, 1, "unresolved", None),  # more may have one
        ([0, 0, 0.4], 1e-9, 1, 2, "gap", 0.4),
        ([0, 0, 0.4], 1e-9, 1, 3, "unresolved", None),  # a zero is missing
        ([0, 0.01, 0.01, 0.4], 1e-9, 2, 1, "unresolved", None),  # copies may be
        ([0, 0.01, 0.01, 0.4], 1e-9, 3, 1, "gap", 0.4),
        ([0, 0.2, 0.35, 0.5], 1e-9, 3, 1, "gap", 0.2),
        ([0, 0.09, 0.17, 0.25, 0.32, 0.4], 1e-9, 10, 1, "no gap", None),
        ([0, 0.09, 0.17, 0.25, 0.32, 0.4], 0.02, 10, 1, "unresolved", None),
        ([0, 0.09, 0.17, 0.25, 0.32, 0.9], 1e-9, 10, 1, "no gap", None),  # above half
    ],
)
def test_a_gap_of_eigenvalues_needs_all_below_it(
    values, reach, columns, zeros, verdict, high
):
    # In any order, and some are lacking.
    mixed = np.array([np.nan, *values[::-1]])
    lowest = LowestEigenvalues.of(
        mixed, np.full_like(mixed, reach), size=10, columns=columns, zeros=zeros
    )
    gap = lowest.gap(0.1)
    assert gap.verdict == verdict
    if high:
        assert gap.high == pytest.approx(high)
        assert gap.low < gap.at < gap.high


def test_intervals_of_counts_cover():
    G = planted(4, 15, links=5, seed=9)
    held = 0
    for seed in range(60):
        low, high = count_below(runs(G, 8, num_runs=6, seed=seed), 0.3).interval()
        held += bool(low <= 4 <= high)
    assert held >= 52  # of 95 %, below in one of a thousand cases


STUDY = """\
study: clusters
stages:
  graph: {use: data.random_graph, model: planted_clusters, links: 3, seed: 4,
          clusters: [{model: erdos_renyi, count: 5, size: 20, p: 0.5}]}
  spectrum: {use: probe.spectrum, graph: graph, num_runs: 20, num_steps: 20}
  found: {use: probe.cluster_count, ritz: spectrum}
  moments: {use: probe.moments, ritz: spectrum, num_moments: 39, support: [0, 2]}
  density: {use: probe.maxent, moments: moments}
  by_density: {use: probe.cluster_count, density: density, method: maxent,
               least_gap: 0.1}
  rest: {use: probe.spectrum, graph: graph, deflate: [components, twins], num_runs: 20,
         num_steps: 20}
  of_rest: {use: probe.cluster_count, ritz: rest}
  rest_moments: {use: probe.moments, ritz: rest, num_moments: 39, support: [0, 2]}
  rest_density: {use: probe.maxent, moments: rest_moments, atoms: apart}
  by_rest_density: {use: probe.cluster_count, density: rest_density, method: maxent,
                    least_gap: 0.1}
  few: {use: probe.maxent, moments: moments, num_moments: 3}
  by_few: {use: probe.cluster_count, density: few, method: maxent, least_gap: 0.1}
  wide: {use: probe.cluster_count, ritz: spectrum, least_gap: 0.9}
  smooth: {use: probe.cluster_count, ritz: spectrum, method: smoothed_lanczos}
  smooth_rest: {use: probe.cluster_count, ritz: rest, method: smoothed_lanczos}
  smeared: {use: probe.cluster_count, ritz: spectrum, method: smoothed_lanczos,
            sigma: 0.3}
  lowest: {use: probe.eigenvalues, graph: graph, method: lanczos, which: SA, k: 12}
  one_by_one: {use: probe.cluster_count, eigenvalues: lowest, method: eigengap}
  too_few: {use: probe.eigenvalues, graph: graph, method: lobpcg, which: SA, k: 5}
  of_too_few: {use: probe.cluster_count, eigenvalues: too_few, method: eigengap}
  sparse: {use: data.random_graph, model: stochastic_block, sizes: [400, 400, 400, 400],
           probabilities: [[0.0105, 0.0015, 0.0015, 0.0015],
                           [0.0015, 0.0105, 0.0015, 0.0015],
                           [0.0015, 0.0015, 0.0105, 0.0015],
                           [0.0015, 0.0015, 0.0015, 0.0105]], seed: 1}
  plain: {use: probe.spectrum, graph: sparse, isolated: drop, num_runs: 10,
          num_steps: 40}
  plain_count: {use: probe.cluster_count, ritz: plain}
  bethe: {use: probe.spectrum, graph: sparse, operator: bethe_hessian, num_runs: 40,
          num_steps: 60}
  groups: {use: probe.cluster_count, ritz: bethe, method: bethe_hessian}
  sparse_lowest: {use: probe.eigenvalues, graph: sparse, isolated: drop, which: SA,
                  method: lanczos, k: 20}
  sparse_count: {use: probe.cluster_count, eigenvalues: sparse_lowest,
                 method: eigengap, least_gap: 0.3}
"""


@pytest.fixture(scope="module")
def results(tmp_path_factory):
    folder = tmp_path_factory.mktemp("clusters")
    (folder / "study.yaml").write_text(STUDY)
    return curvflow.run(folder / "study.yaml", store=folder / "store", workers=1)


def test_planted_clusters_are_counted(results):
    found = results["found"]
    assert found["verdict"] == "gap"
    assert found["components"] <= 5
    assert found["count_low"] <= 5 <= found["count_high"]
    assert found["gap_low"] < found["gap_at"] < found["gap_high"]
    assert found["converged"]


def test_a_density_of_the_same_vectors_gives_the_same_count(results):
    found, other = results["by_density"], results["found"]
    assert found["verdict"] == "gap"
    # The density meets moments within their errors, not exactly.
    assert abs(float(found["count"] - other["count"])) < 0.1 * float(found["count_sem"])
    assert float(found["count_sem"]) == pytest.approx(
        float(other["count_vectors"]), rel=0.5
    )
    assert found["count_low"] < 5 < found["count_high"]
    assert results["by_few"]["verdict"] == "unresolved"
    assert np.isnan(results["by_few"]["count"])


def test_components_taken_out_are_counted_exactly(results):
    whole = float(results["found"]["count_vectors"])
    for stage in ("of_rest", "by_rest_density"):
        found = results[stage]
        assert (found["verdict"], found["size"]) == ("gap", 100)
        assert abs(float(found["count"]) - 5) < 4 * float(found["count_vectors"])
        # Three of five are known.
        assert float(found["count_vectors"]) < 0.9 * whole


def test_a_density_of_a_line_has_no_gap():
    x = torch.linspace(0, 2, 2001, dtype=torch.float64)[1:-1]
    flat = torch.full_like(x, 1 / len(x))
    orders = torch.zeros(100, 100, dtype=torch.float64)
    given = (x, flat, 400, orders, "chebyshev", (0.0, 2.0))
    upto = 400 * flat.cumsum(0)
    for bounds, verdict in (
        ((upto - 1, upto + 1), "no gap"),
        ((upto - 5, upto + 5), "unresolved"),  # which may leave out six
        (None, "unresolved"),
    ):
        gap, held = EntropicDensity(*given, bounds=bounds).gap(LEAST)
        assert gap.verdict == verdict
        assert np.isnan(held)


def any_graph(rng):
    """Return a small graph of any kind, isolated nodes and pairs among them."""
    size, seed = int(rng.integers(4, 90)), int(rng.integers(1 << 20))
    kinds = [
        lambda: nx.gnp_random_graph(size, rng.choice([3 / size, 0.3]), seed=seed),
        lambda: nx.barabasi_albert_graph(size, 1, seed=seed),
        lambda: nx.grid_2d_graph(size // 8 + 2, 4),
        lambda: nx.complete_graph(size),
        lambda: planted(size // 20 + 2, 15, size // 4, seed),
        lambda: nx.disjoint_union(
            nx.disjoint_union_all([nx.path_graph(2)] * size), nx.empty_graph(size // 30)
        ),
        lambda: nx.disjoint_union_all([nx.star_graph(k + 1) for k in range(size % 9)]),
    ]
    return kinds[rng.integers(len(kinds))]()


def test_no_verdict_of_a_random_density_claims_what_is_not_so():
    told = {"gap": 0, "no gap": 0, "unresolved": 0}
    held = 0
    graphs = [(any_graph(np.random.default_rng(seed)), seed) for seed in range(40)]
    graphs += [(nx.grid_2d_graph(28, 28 + seed), seed) for seed in range(4)]
    for G, seed in graphs:
        rng = np.random.default_rng(seed)
        W = nx.to_scipy_sparse_array(G, dtype=float)
        if not W.nnz:
            continue
        spectrum = np.sort(nx.normalized_laplacian_spectrum(G))
        is_grid = len(G) >= 784
        orders = 80 if is_grid else int(rng.choice([9, 29]))
        settings = {"num_moments": orders, "support": (0.0, 2.0)}
        if seed % 3:
            settings["deflate"] = BOTH[: seed % 3]
        moments = result(
            Moments, "probe.moments", W, num_probes=12, seed=seed, **settings
        )
        given = {"moments": [moments]}
        density = computed("probe.maxent", of("probe.maxent", **given))
        least = 0.1 if is_grid else float(rng.choice([LEAST, 0.1]))
        found = computed(
            "probe.cluster_count",
            of(
                "probe.cluster_count",
                settings={"method": "maxent", "least_gap": least},
                density=[Entropic("d", "probe.maxent", {}, density, "")],
            ),
        )
        verdict = str(found["verdict"])
        told[verdict] += 1
        below = spectrum[spectrum <= np.median(spectrum)]
        gaps = np.diff(below)
        if verdict == "no gap":
            assert (gaps < np.maximum(least, below[:-1])).all(), seed
        if verdict == "gap":
            truth = (spectrum < found["gap_at"]).sum()
            held += bool(found["count_low"] <= truth <= found["count_high"])
            assert abs(found["count"] - truth) < 5 * found["count_sem"] + 1, seed
    assert min(told.values()) >= 3, told
    assert held >= 0.88 * told["gap"]  # of 95 %


def test_nothing_below_a_minimum_is_no_count():
    """Of two nodes a density may have all at either end of its support."""
    points = torch.linspace(0, 2, 101).double()
    masses = torch.zeros(101).double()
    masses[1], masses[-1] = 0.1, 0.9
    density = EntropicDensity(
        points, masses, 2, torch.zeros(20, 20).double(), "chebyshev", (0.0, 2.0)
    )
    gap, held = density.gap(LEAST)
    assert gap.verdict == "unresolved"
    assert np.isnan([gap.at, held]).all()


@pytest.mark.parametrize("taken_out", [(), ("components",), BOTH])
def test_intervals_of_few_nodes_and_runs_hold_the_count(taken_out):
    """Few signs may lie along one eigenvector, and state no error of their own."""
    graphs = [nx.path_graph(2), nx.path_graph(4), nx.cycle_graph(4), nx.star_graph(3)]
    held = told = 0
    for seed in range(10):
        for G in graphs:
            W = nx.to_scipy_sparse_array(G)
            given = {"deflate": taken_out, "num_runs": 4, "num_steps": 9, "seed": seed}
            runs = result(Ritz, "probe.spectrum", W, **given)
            taken = {
                "ritz": [runs],
                "graph": member("probe.spectrum", W).inputs["graph"],
            }
            settings = {"method": "slq"}
            found = computed(
                "probe.cluster_count",
                of("probe.cluster_count", settings=settings, **taken),
            )
            if found["verdict"] == "gap":
                told += 1
                held += (
                    found["count_low"] <= 1 + 1e-9 and found["count_high"] + 1e-9 >= 1
                )
    assert told >= 35
    assert held >= 0.9 * told


def test_a_count_of_none_has_converged(tmp_path):
    study = curvflow.Study(
        stages={
            "star": {"use": "data.random_graph", "model": "star", "n": 10},
            "ritz": {"use": "probe.spectrum", "graph": "star", "num_runs": 10,
                     "operator": "bethe_hessian", "num_steps": 20},
            "found": {"use": "probe.cluster_count", "ritz": "ritz",
                      "method": "bethe_hessian"},
        }
    )  # fmt: skip
    found = curvflow.run(study, store=tmp_path / "store")["found"]
    told = [found[name].item() for name in ("verdict", "count", "converged")]
    assert told == ["gap", 0, True]


def test_a_density_of_another_support_is_refused(tmp_path):
    (tmp_path / "study.yaml").write_text(
        "study: other\nstages:\n"
        "  graph: {use: data.random_graph, model: complete, n: 30}\n"
        "  moments: {use: probe.moments, graph: graph, operator: laplacian,\n"
        "            num_moments: 4, num_probes: 3, support: [0, 60]}\n"
        "  density: {use: probe.maxent, moments: moments}\n"
        "  found: {use: probe.cluster_count, density: density, method: maxent}\n"
    )
    result = curvflow.run(tmp_path / "study.yaml", workers=1)
    (failed,) = result.run.failures
    assert "expected one of the normalized Laplacian, from 0 to 2, got" in str(failed)


def test_a_density_without_what_its_errors_need_is_refused(results):
    node = results["density"]
    arrays = {name: node[name].values for name in ("grid", "mass", "size")}
    density = NodeData("density", "probe.maxent", {}, arrays, "digest")
    params = ClusterCountParams(method="maxent")
    member = Member(params, {"density": [density]})
    with pytest.raises(InputError, match="that 'density' stored before that was kept"):
        cluster_count([member], Machine())


def test_methods_that_share_vectors_give_one_count(results):
    for other, base in (("smooth", "found"), ("smooth_rest", "of_rest")):
        found, plain = results[other], results[base]
        assert found["verdict"] == "gap"
        assert float(found["count"]) == pytest.approx(float(plain["count"]), rel=1e-3)
        assert found["count_low"] <= 5 <= found["count_high"]
        assert found["components"] == plain["components"]
    assert results["smeared"]["verdict"] == "unresolved"


def test_lowest_eigenvalues_give_the_number_without_an_error(results):
    found = results["one_by_one"]
    assert found["verdict"] == "gap"
    assert found["count"] == found["count_low"] == found["count_high"] == 5
    assert (found["count_sem"], found["size"], found["components"]) == (0, 100, 3)
    assert found["converged"]
    assert found["gap_low"] < found["gap_at"] < found["gap_high"]
    assert results["of_too_few"]["verdict"] == "unresolved"
    assert np.isnan(results["of_too_few"]["count"])
    # Sparse groups leave no gap of this width.
    assert np.isnan(results["sparse_count"]["count"])
    assert results["sparse_count"]["verdict"] == "unresolved"


def test_eigenvalues_of_ritz_data_are_refused(tmp_path):
    (tmp_path / "study.yaml").write_text(
        "study: read\nstages:\n"
        "  graph: {use: data.random_graph, model: complete, n: 30}\n"
        "  spectrum: {use: probe.spectrum, graph: graph, num_runs: 2, num_steps: 4}\n"
        "  lowest: {use: probe.eigenvalues, ritz: spectrum, which: SA, k: 2,\n"
        "           method: lanczos}\n"
        "  found: {use: probe.cluster_count, eigenvalues: lowest, graph: graph,\n"
        "          method: eigengap}\n"
    )
    result = curvflow.run(tmp_path / "study.yaml", workers=1)
    (failed,) = result.run.failures
    assert "expected computed ones, got those that 'lowest' read" in str(failed)


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("which: SA, k: 12", "which: LA, k: 12", "expected the lowest eigenvalues"),
        ("eigenvalues: lowest, method: eigengap", "eigenvalues: lowest", "Ritz data"),
        (
            "eigenvalues: lowest, method",
            "eigenvalues: lowest, sigma: 0.1, method",
            "sigma cannot be combined with method eigengap",
        ),
        (
            "ritz: spectrum, method: smoothed_lanczos}",
            "ritz: spectrum, method: eigengap}",
            "expected eigenvalues for eigengap",
        ),
        (
            "graph: graph, method: lanczos, which",
            "graph: graph, operator: laplacian, method: lanczos, which",
            "expected eigenvalues of normalized_laplacian, got 'lowest' of laplacian",
        ),
        ("isolated: drop, which", "isolated: one, which", "isolated one of"),
    ],
)
def test_methods_refuse_what_they_cannot_use_while_planning(old, new, message):
    assert STUDY.count(old) == 1
    with pytest.raises(StudyError, match=message):
        load_study(STUDY.replace(old, new), file="study.yaml")


def test_without_a_gap_there_is_no_number(results):
    found = results["wide"]
    assert found["verdict"] == "no gap"
    assert np.isnan(found["count"])
    assert not found["converged"]


def test_sparse_groups_are_counted_by_the_bethe_hessian_alone(results):
    found = results["plain_count"]
    assert (found["verdict"], found["components"]) == ("gap", 1)
    assert 1 == found["count_low"] < found["count_high"] < 4
    found = results["groups"]
    assert found["verdict"] == "gap"
    assert round(float(found["count"])) == 4
    assert found["count_low"] <= 4 <= found["count_high"]


def test_a_spectrum_of_another_operator_is_refused_while_planning():
    wrong = STUDY.replace(", method: bethe_hessian}", "}")
    with pytest.raises(StudyError, match="a spectrum of normalized_laplacian, got"):
        load_study(wrong, file="study.yaml")
