"""Random graphs, and graphs of known spectra."""

import tracemalloc
from itertools import pairwise
from math import comb

import networkx
import numpy as np
import pytest
from pydantic import ValidationError

import curvflow
from curvflow.errors import InputError, StudyError
from curvflow.schemas.kinds.data.graphs.random_graph import (
    PRESETS,
    RandomGraphParams,
    _is_graphical,
)
from curvflow.tasks.data.graphs.random_graph import member_bytes
from curvflow.tasks.numerics.graphs import clusters, degrees, pairs, random
from curvflow.tasks.numerics.streams import stream
from tests.tasks.toys import assert_declared, compute, member

KIND = "data.random_graph"
ER = {"model": "erdos_renyi", "size": [20, 40], "count": 4, "p": 0.4}
WS = {"model": "watts_strogatz", "size": 30, "count": 3, "k": 6, "p": 0.3}
BA = {"model": "barabasi_albert", "size": [15, 25], "m": 3}
PLANTED = {"model": "planted_clusters", "clusters": [ER, WS, BA], "links": 5}
TABLE = [[0.8, 0.1, 0.0], [0.1, 1.0, 0.05], [0.0, 0.05, 0.3]]

# A graph of each model, whose edges are as many as planned where that is said.
FIXED = [
    {"model": "gnm", "n": 30, "m": 100},
    {"model": "gnm", "n": 12, "m": 60},
    {"model": "gnm", "n": 5, "m": 10},
    {"model": "watts_strogatz", "n": 100, "k": 6, "p": 0.3},
    {"model": "watts_strogatz", "n": 70, "k": 16, "p": 1.0},
    {"model": "watts_strogatz", "n": 9, "k": 8, "p": 0.5},
    {"model": "watts_strogatz", "n": 4, "k": 2, "p": 1.0},
    {"model": "watts_strogatz", "n": 80, "k": 40, "p": 0.9},
    {"model": "barabasi_albert", "n": 300, "m": 3},
    {"model": "barabasi_albert", "n": 50, "m": 20},
    {"model": "barabasi_albert", "n": 6, "m": 5},
    {"model": "random_regular", "n": 50, "d": 3},
    {"model": "random_regular", "n": 20, "d": 9},
    {"model": "random_regular", "n": 20, "d": 17},
    {"model": "random_regular", "n": 3, "d": 2},
    {"model": "random_regular", "n": 7, "d": 0},
    {"model": "configuration", "degrees": [5, 3, 3, 2, 2, 1], "simple": "switch"},
    {"model": "complete", "n": 7},
    {"model": "complete", "n": 1},
    {"model": "cycle", "n": 8},
    {"model": "path", "n": 9},
    {"model": "star", "n": 5},
    {"model": "hypercube", "d": 4},
    {"model": "grid", "dim": [3, 4]},
    {"model": "complete_bipartite", "n1": 3, "n2": 5},
    {"model": "ring_of_cliques", "num_cliques": 4, "clique_size": 5},
]
DRAWN = [
    {"model": "erdos_renyi", "n": 60, "p": 0.2},
    {"model": "erdos_renyi", "n": 40, "p": 0.0},
    {"model": "stochastic_block", "sizes": [40, 30, 20], "probabilities": TABLE},
    {"model": "configuration", "n": 80, "exponent": 2.5, "simple": "switch"},
    {"model": "configuration", "degrees": [3] * 60},
    PLANTED,
    {**PLANTED, "n": 240},
]


def made(seed=0, **params):
    (outcome,) = compute(KIND, [member(KIND, {"seed": seed, **params})])
    assert_declared(KIND, outcome)
    return outcome.arrays


def adjacency(arrays):
    """Return the dense matrix, of rows that hold to what the edge type promises."""
    size, indptr, indices = arrays["size"], arrays["indptr"], arrays["indices"]
    assert len(indptr) == size + 1
    dense = np.zeros((size, size))
    for node, (start, end) in enumerate(pairwise(indptr)):
        row = indices[start:end]
        assert (np.diff(row) > 0).all()
        dense[node, row] = 1
    assert np.array_equal(dense, dense.T)
    assert not dense.diagonal().any()
    assert arrays["num_edges"] == dense.sum() / 2
    return dense


@pytest.mark.parametrize("params", FIXED, ids=str)
def test_a_graph_is_simple_and_has_its_nodes_and_edges(params):
    planned = RandomGraphParams.model_validate(params)
    for seed in range(3):
        arrays = made(seed, **params)
        adjacency(arrays)
        assert arrays["size"] == planned.rows
        assert arrays["num_edges"] == planned.mean_edges


@pytest.mark.parametrize("params", DRAWN, ids=str)
def test_a_graph_is_simple_and_has_the_edges_planned_on_average(params):
    planned = RandomGraphParams.model_validate(params)
    counts = []
    for seed in range(10):
        arrays = made(seed, **params)
        adjacency(arrays)
        assert planned.rows in (arrays["size"], None)
        counts.append([arrays["num_edges"], arrays["size"]])
    # Erased edges are not planned for.
    expected = [planned.mean_edges, planned.mean_nodes]
    np.testing.assert_allclose(np.mean(counts, axis=0), expected, rtol=0.1)


@pytest.mark.parametrize("params", [FIXED[0], FIXED[3], FIXED[8], *DRAWN[::2]], ids=str)
def test_a_seed_draws_the_same_graph_and_another_another(params):
    first, again, other = (made(seed, **params) for seed in (3, 3, 4))
    assert all(np.array_equal(first[name], again[name]) for name in first)
    assert params.get("p") == 0 or not np.array_equal(
        first["indices"], other["indices"]
    )


def test_parameters_that_are_null_are_not_given():
    ring = made(model="cycle", n=5, p=None, clusters=None, preset=None)
    assert np.array_equal(ring["indices"], made(model="cycle", n=5)["indices"])


def waves(n, step):
    return 2 - 2 * np.cos(step * np.arange(n) / n)


SPECTRA = {
    "complete": ({"n": 7}, [0, *[7] * 6]),
    "cycle": ({"n": 8}, waves(8, 2 * np.pi)),
    "path": ({"n": 9}, waves(9, np.pi)),
    "star": ({"n": 6}, [0, *[1] * 4, 6]),
    "hypercube": (
        {"d": 5},
        np.repeat(np.arange(0, 11, 2), [comb(5, k) for k in range(6)]),
    ),
    "grid": (
        {"dim": [3, 4, 2]},
        [a + b + c for a in waves(3, np.pi) for b in waves(4, np.pi) for c in (0, 2)],
    ),
    "complete_bipartite": ({"n1": 3, "n2": 5}, [0, *[3] * 4, *[5] * 2, 8]),
}


@pytest.mark.parametrize("model", SPECTRA)
def test_the_laplacian_of_a_known_graph_has_its_eigenvalues(model):
    params, expected = SPECTRA[model]
    dense = adjacency(made(model=model, **params))
    values = np.linalg.eigvalsh(np.diag(dense.sum(axis=0)) - dense)
    np.testing.assert_allclose(values, np.sort(expected), atol=1e-12)


@pytest.mark.parametrize("num_cliques", [2, 3, 6])
def test_a_ring_of_cliques_is_that_of_networkx(num_cliques):
    dense = adjacency(
        made(model="ring_of_cliques", num_cliques=num_cliques, clique_size=4)
    )
    theirs = networkx.ring_of_cliques(num_cliques, 4)
    assert np.array_equal(dense, networkx.to_numpy_array(theirs))


def test_no_pair_is_joined_with_probability_0_and_every_one_with_1():
    assert made(model="erdos_renyi", n=50, p=0.0)["num_edges"] == 0
    everyone = made(model="erdos_renyi", n=50, p=1.0)
    assert np.array_equal(adjacency(everyone), 1 - np.eye(50))


def measures(dense):
    """Return the mean squares of degrees and of common neighbours, and transitivity."""
    counts = dense.sum(axis=0)
    squares = dense @ dense
    np.fill_diagonal(squares, 0)
    closed = (squares * dense).sum() / (counts * (counts - 1)).sum()
    return [(counts**2).mean(), (squares**2).mean(), closed]


def assert_alike(ours, theirs):
    """Hold two samples to one mean, within five standard errors of the difference."""
    ours, theirs = np.array(ours), np.array(theirs)
    gap = np.abs(ours.mean(axis=0) - theirs.mean(axis=0))
    error = np.sqrt(ours.var(axis=0) / len(ours) + theirs.var(axis=0) / len(theirs))
    assert (gap <= 5 * error + 1e-9).all(), (gap, error)


@pytest.mark.parametrize(
    ("params", "theirs"),
    [
        (
            {"model": "erdos_renyi", "n": 100, "p": 0.06},
            lambda seed: networkx.gnp_random_graph(100, 0.06, seed=seed),
        ),
        (
            {"model": "gnm", "n": 100, "m": 300},
            lambda seed: networkx.gnm_random_graph(100, 300, seed=seed),
        ),
        (
            {"model": "watts_strogatz", "n": 100, "k": 8, "p": 0.2},
            lambda seed: networkx.watts_strogatz_graph(100, 8, 0.2, seed=seed),
        ),
        (
            {"model": "watts_strogatz", "n": 30, "k": 12, "p": 0.7},
            lambda seed: networkx.watts_strogatz_graph(30, 12, 0.7, seed=seed),
        ),
        (
            {"model": "barabasi_albert", "n": 100, "m": 3},
            lambda seed: networkx.barabasi_albert_graph(100, 3, seed=seed),
        ),
        (
            {"model": "barabasi_albert", "n": 40, "m": 10},
            lambda seed: networkx.barabasi_albert_graph(40, 10, seed=seed),
        ),
        (
            {"model": "random_regular", "n": 40, "d": 6},
            lambda seed: networkx.random_regular_graph(6, 40, seed=seed),
        ),
    ],
    ids=lambda value: str(value) if isinstance(value, dict) else "",
)
def test_degrees_and_clustering_are_those_of_networkx(params, theirs):
    seeds = range(30)
    assert_alike(
        [measures(adjacency(made(seed, **params))) for seed in seeds],
        [measures(networkx.to_numpy_array(theirs(seed))) for seed in seeds],
    )


def test_edges_of_a_ring_are_led_at_once_as_in_turn():
    n, k, generator = 20, 6, stream(0, "rings")
    samples = []
    for lead in (random._led_at_once, random._led_in_turn):
        found = []
        for _ in range(150):
            slots = np.arange(n * k // 2)
            targets = (slots % n + slots // n + 1) % n
            led = np.flatnonzero(pairs.uniform(len(slots), generator) < 0.6)
            targets[led] = lead(n, k, led, targets, generator)
            dense = np.zeros((n, n))
            dense[slots % n, targets] = dense[targets, slots % n] = 1
            assert dense.sum() == n * k
            found.append(measures(dense))
        samples.append(found)
    assert_alike(*samples)


def test_nodes_of_a_growing_graph_wait_for_others_without_changing_the_law():
    generator = stream(0, "growth")
    samples = []
    for by_one in (True, False):
        found = []
        for _ in range(150):
            targets = np.full((30, 2), -1, dtype=np.int32)
            targets[0] = 0
            random._race(targets, 32 if by_one else 10, generator)
            if not by_one:
                random._attach(targets, 10, 32, generator)
            counts = np.bincount(targets.ravel(), minlength=32)
            found.append([*counts[:4], (counts**2).mean()])
        samples.append(found)
    assert_alike(*samples)


def frequencies(draw, count=1500):
    """Return how often each set of edges is drawn, by its keys."""
    found: dict[tuple[int, ...], int] = {}
    for _ in range(count):
        drawn = draw()
        key = tuple(np.sort(pairs.pair_keys(drawn.sources, drawn.targets, 10)))
        found[key] = found.get(key, 0) + 1
    return np.array([*found.values()])


def test_all_graphs_of_so_many_edges_are_alike_in_chance():
    generator = stream(0, "gnm")
    counts = frequencies(lambda: random.gnm(4, 3, generator))
    assert len(counts) == comb(6, 3)
    assert np.abs(counts - 75).max() < 5 * 75**0.5


def test_graphs_of_independent_edges_have_the_chances_of_their_edges():
    generator = stream(0, "gnp")
    numbers = np.zeros(4, dtype=int)
    for _ in range(1000):
        numbers[len(random.erdos_renyi(3, 0.3, generator).sources)] += 1
    chances = 1000 * np.array([comb(3, k) * 0.3**k * 0.7 ** (3 - k) for k in range(4)])
    assert (np.abs(numbers - chances) < 5 * chances**0.5).all()


def test_regular_graphs_are_regular_and_nearly_alike_in_chance():
    for params in [p for p in FIXED if p["model"] == "random_regular"]:
        assert (adjacency(made(**params)).sum(axis=0) == params["d"]).all()
    generator = stream(0, "regular")
    counts = frequencies(lambda: degrees.random_regular(5, 2, generator), 600)
    assert len(counts) == 12
    assert np.abs(counts - 50).max() < 5 * 50**0.5


def test_numbers_of_pairs_are_counted_to_the_last():
    far = 2**31 - 1  # where the root of a number is no more exact
    v = np.array([1, 2, 2, 3, far, far, far - 1], dtype=np.int64)
    w = np.array([0, 0, 1, 2, 0, far - 1, far - 2], dtype=np.int64)
    found = pairs.pair(v * (v - 1) // 2 + w)
    assert np.array_equal(found.sources, v)
    assert np.array_equal(found.targets, w)


def test_blocks_are_joined_with_their_probabilities():
    sizes = np.array([60, 50, 40])
    arrays = made(model="stochastic_block", sizes=[60, 50, 40], probabilities=TABLE)
    assert np.array_equal(np.bincount(arrays["cluster"]), sizes)
    member_of = np.eye(3)[arrays["cluster"]]
    edges = member_of.T @ adjacency(arrays) @ member_of
    every = np.outer(sizes, sizes) - np.diag(sizes)
    p = np.array(TABLE)
    assert (np.abs(edges - every * p) <= 10 * np.sqrt(every * p * (1 - p))).all()
    assert edges[0, 2] == 0
    assert edges[1, 1] == every[1, 1]


def test_clusters_are_as_many_as_planted_and_as_large():
    arrays = made(**{**PLANTED, "n": 240, "links": 0})
    sizes = np.bincount(arrays["cluster"])
    assert sizes.sum() == arrays["size"] == 240
    assert all(20 <= size <= 40 for size in sizes[:4])
    assert list(sizes[4:7]) == [30] * 3
    assert 15 <= sizes[7] <= 25
    graph = networkx.from_numpy_array(adjacency(arrays))
    parts = list(networkx.connected_components(graph))
    assert sorted(map(len, parts)) == sorted(sizes)


@pytest.mark.parametrize("links", [1, 40, 5899, 5900])
def test_clusters_are_joined_by_so_many_edges(links):
    lone = {"model": "erdos_renyi", "count": 2, "size": 50, "p": 0.0}
    pair = {"model": "erdos_renyi", "size": 34, "p": 0.0}
    arrays = made(model="planted_clusters", clusters=[lone, pair], links=links)
    dense = adjacency(arrays)
    assert arrays["num_edges"] == links
    same = np.equal.outer(arrays["cluster"], arrays["cluster"])
    assert not dense[same].any()


@pytest.mark.parametrize(
    ("preset", "n", "count", "least", "most"),
    [
        ("granziol_305", 201_600, 305, 500, 1000),
        ("granziol_1355", 404_420, 1355, 200, 400),
    ],
)
def test_the_networks_of_the_thesis_have_its_nodes_and_clusters(
    preset, n, count, least, most
):
    params = RandomGraphParams(model="planted_clusters", preset=preset)
    assert params.rows == n
    assert sum(c.count for c in PRESETS[preset].clusters) == count
    bounds = np.full(count, least), np.full(count, most)
    sizes = clusters.cluster_sizes(*bounds, n, stream(0, preset))
    assert sizes.sum() == n
    assert least <= sizes.min() < least + 20
    assert most - 30 < sizes.max() <= most


def test_degrees_given_are_kept_by_switches_and_not_exceeded_by_erasure():
    given = [30, 20, *[5] * 10, *[3] * 20, *[1] * 20]
    params = {"model": "configuration", "degrees": given}
    for seed in range(3):
        kept = adjacency(made(seed, **params, simple="switch")).sum(axis=0)
        assert np.array_equal(kept, given)
        erased = adjacency(made(seed, **params)).sum(axis=0)
        assert (erased <= given).all()
        assert erased.sum() < sum(given)


def test_degrees_drawn_fall_as_their_power():
    drawn = degrees.power_law_degrees(20_000, 2.5, 2, 40, stream(0, "power"))
    chances = np.arange(2, 41) ** -2.5
    expected = 20_000 * chances / chances.sum()
    counts = np.bincount(drawn, minlength=41)[2:]
    assert (np.abs(counts - expected) < 5 * np.sqrt(expected) + 1).all()
    assert drawn.sum() % 2 == 0


def test_degrees_that_switches_do_not_reach_are_told(monkeypatch):
    monkeypatch.setattr(degrees, "PAIRINGS", 0)
    with pytest.raises(InputError, match="simple: expected degrees of a graph that"):
        made(model="configuration", degrees=[2, 2, 2], simple="switch")


@pytest.mark.parametrize(
    "params",
    [
        {"model": "erdos_renyi", "n": 30_000, "p": 5e-4},
        {"model": "barabasi_albert", "n": 30_000, "m": 8},
        {"model": "watts_strogatz", "n": 30_000, "k": 16, "p": 0.1},
        {"model": "watts_strogatz", "n": 30_000, "k": 16, "p": 1.0},
    ],
    ids=str,
)
def test_the_memory_planned_is_what_is_taken(params):
    made(**{**params, "n": 100})
    tracemalloc.start()
    made(**params)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak == pytest.approx(member_bytes(member(KIND, params)), rel=0.2)


REFUSED = [
    ({"model": "erdos_renyi", "n": 5}, "expected p with model erdos_renyi, got none"),
    ({"model": "gnm"}, "expected m and n with model gnm, got none"),
    (
        {"model": "configuration"},
        "expected degrees, or exponent and n with model configuration, got none",
    ),
    (
        {"model": "cycle", "n": 5, "p": 0.1, "m": 1},
        "m, p cannot be combined with model cycle, which takes n. Remove m, p.",
    ),
    (
        {"model": "complete", "n": 5, "simple": "switch"},
        "simple cannot be combined with model complete",
    ),
    (
        {**PLANTED, "preset": "granziol_305"},
        "preset cannot be combined with model planted_clusters",
    ),
    (
        {"model": "gnm", "n": 4, "m": 7},
        "expected m up to the 6 pairs of 4 nodes, got 7",
    ),
    (
        {"model": "watts_strogatz", "n": 9, "k": 3, "p": 0.1},
        "expected k even and below",
    ),
    ({"model": "watts_strogatz", "n": 8, "k": 8, "p": 0.1}, "below the 8 nodes, got 8"),
    ({"model": "barabasi_albert", "n": 5, "m": 5}, "expected m from 1 to 4, got 5"),
    (
        {"model": "random_regular", "n": 5, "d": 5},
        "expected d below the 5 nodes, got 5",
    ),
    (
        {"model": "random_regular", "n": 5, "d": 3},
        "expected n or d even, got n 5 and d 3",
    ),
    ({"model": "configuration", "degrees": [3, 1]}, "expected degrees from 0 to 1"),
    ({"model": "configuration", "degrees": [-1, 1]}, "expected degrees from 0 to 1"),
    ({"model": "configuration", "degrees": [1, 1, 1]}, "of an even sum, got 3"),
    (
        {"model": "configuration", "degrees": [3, 3, 1, 1], "simple": "switch"},
        "expected degrees of a graph without loops and repeated edges",
    ),
    (
        {"model": "configuration", "n": 5, "exponent": 2.0, "min_degree": 5},
        "expected min_degree up to max_degree up to 4, got 5 and 4",
    ),
    (
        {"model": "stochastic_block", "sizes": [2, 2], "probabilities": [[0.1]]},
        "expected probabilities of 2 rows and columns, as sizes, got rows of 1",
    ),
    (
        {"model": "stochastic_block", "sizes": [0], "probabilities": [[0.1]]},
        "expected sizes of 1 or more",
    ),
    (
        {"model": "stochastic_block", "sizes": [1], "probabilities": [[1.5]]},
        "expected probabilities from 0 to 1",
    ),
    (
        {
            "model": "stochastic_block",
            "sizes": [1, 1],
            "probabilities": [[0, 1], [0, 0]],
        },
        "expected symmetric probabilities",
    ),
    (
        {**PLANTED, "n": 400},
        "expected n from 185 to 275, as the clusters allow, got 400",
    ),
    ({**PLANTED, "clusters": []}, "expected clusters, got none"),
    ({**PLANTED, "links": 10**6}, "expected links up to the"),
    ({**PLANTED, "clusters": [{**BA, "m": 15}]}, "expected m from 1 to 14, got 15"),
    ({**PLANTED, "clusters": [{**BA, "size": [9, 8]}]}, r"or \[least, most\], got"),
    (
        {**PLANTED, "clusters": [{**BA, "p": 0.1}]},
        "p cannot be combined with model bara",
    ),
    ({"model": "cycle", "n": 2}, "expected n of 3 or more, got 2"),
    ({"model": "hypercube", "d": 40}, "expected d up to 30"),
    ({"model": "grid", "dim": [3, 0]}, "expected dim of 1 or more points"),
    ({"model": "grid", "dim": [10**6, 10**6]}, "expected at most 2147483647 nodes"),
]


@pytest.mark.parametrize(("params", "message"), REFUSED, ids=str)
def test_parameters_that_make_no_graph_are_refused(params, message):
    with pytest.raises(ValidationError, match=message):
        member(KIND, params)


def test_a_graph_that_cannot_be_is_refused_while_planning(tmp_path):
    study = (
        "study: wrong\nstages:\n  g: {use: data.random_graph, model: star, p: 0.1}\n"
    )
    (tmp_path / "study.yaml").write_text(study)
    with pytest.raises(
        StudyError, match=r"study.yaml:3.*p cannot be combined"
    ) as error:
        curvflow.run(tmp_path / "study.yaml", store="memory:")
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("length", [1, 2, 3, 4, 5, 6])
def test_degrees_are_of_a_graph_where_networkx_says_so(length):
    rng = np.random.default_rng(length)
    for given in rng.integers(0, length, size=(40, length)):
        if given.sum() % 2 == 0:
            expected = networkx.is_graphical(given.tolist(), method="eg")
            assert _is_graphical(np.sort(given)[::-1]) == expected
