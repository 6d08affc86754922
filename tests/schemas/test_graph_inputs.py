"""What a graph allows as an operator, said while planning."""

import pytest

from curvflow.errors import StudyError
from curvflow.schemas.kinds import all_kinds, find_kind
from curvflow.schemas.kinds.shared.operators import OF_GRAPHS, OperatorParams
from curvflow.schemas.nodes import (
    Density,
    Graph,
    Matrix,
    Ritz,
    Spectrum,
    Trajectory,
    Weights,
)
from curvflow.schemas.study.study import load_study

STUDY = """\
study: graphs
stages:
  xor: {use: data.xor}
  fit: {use: train, data: xor, model: {kind: linear}, rule: {rule: sgd, lr: 0.1},
        epochs: 1}
  graph: {use: data.random_graph, model: cycle, n: 9}
  whole: {use: probe.spectrum, graph: graph}
  rest: {use: probe.spectrum, graph: graph, deflate: [twins]}
  moments: {use: probe.moments, ritz: rest}
  apart: {use: probe.maxent, moments: moments, atoms: apart}
"""


def loaded(line):
    return load_study(f"{STUDY}  asked: {{use: {line}}}\n", file="study.yaml")


@pytest.mark.parametrize(
    "line",
    [
        "probe.spectrum, graph: graph",
        "probe.trace, graph: graph, operator: laplacian, isolated: drop",
        "probe.eigenvalues, graph: graph, k: 9, operator: bethe_hessian, r: 1.5",
        "probe.moments, graph: graph, operator: normalized_adjacency, isolated: one",
        "probe.spectrum, graph: graph, operator: adjacency, deflate: [twins]",
    ],
)
def test_a_graph_is_enough(line):
    assert loaded(line).stages["asked"].inputs == {"graph": ("graph",)}


@pytest.mark.parametrize(
    ("line", "message"),
    [
        (
            "probe.spectrum, graph: graph, operator: ggn",
            "operator: expected an operator of the graph 'graph', got ggn. Known: nor",
        ),
        (
            "probe.spectrum, graph: graph, operator: hessian",
            "operator: expected an operator of the graph 'graph', got hessian",
        ),
        (
            "probe.spectrum, weights: fit, operator: laplacian",
            "operator: expected an operator of the weights 'fit', got laplacian",
        ),
        (
            "probe.spectrum, weights: fit, isolated: drop",
            "isolated: 'isolated' cannot be combined with 'weights'. Remove it.",
        ),
        (
            "probe.trace, graph: graph, probes_per: batch",
            "probes_per: 'probes_per' cannot be combined with 'graph'. Remove it.",
        ),
        (
            "probe.eigenvalues, graph: graph, k: 10",
            "k: expected at most the 9 rows of 'graph', got 10. Lower it.",
        ),
        (
            "probe.eigenvalues, graph: graph, operator: ggn",
            "operator: expected an operator of the graph 'graph', got ggn",
        ),
        (
            "probe.spectrum, graph: graph, operator: laplacian, r: 2",
            "asked: r cannot be combined with operator laplacian. Remove r, or take",
        ),
        (
            "probe.spectrum, graph: graph, operator: laplacian, isolated: one",
            "asked: isolated one cannot be combined with operator laplacian",
        ),
        (
            "probe.spectrum, weights: fit, deflate: [twins]",
            "deflate: 'deflate' cannot be combined with 'weights'. Remove it.",
        ),
        (
            "probe.moments, ritz: rest, deflate: [twins]",
            "deflate: 'deflate' cannot be combined with 'ritz'. Remove it, or give it",
        ),
        (
            "probe.moments, graph: graph, operator: adjacency, deflate: [components]",
            "deflate components cannot be combined with operator adjacency, of which",
        ),
        (
            "probe.spectrum, graph: graph, deflate: [twins, twins]",
            "expected each once in deflate, got ['twins', 'twins']",
        ),
        (
            "probe.logdet, ritz: rest, damping: 1",
            "ritz: expected Ritz data of all eigenvalues, got 'rest' with deflate. Rem",
        ),
        (
            "figure.stem, of: rest",
            "of: expected Ritz data of all eigenvalues, got 'rest' with deflate. Remov",
        ),
        (
            "aggregate.spectral_distance, of: apart, target: whole, divergence: "
            "wasserstein1",
            "of: expected a density of all eigenvalues, got 'apart' with atoms ap",
        ),
        (
            "probe.spectrum, graph: graph, weights: fit",
            "'weights' cannot be combined with 'graph'. Remove one of them.",
        ),
    ],
)
def test_what_a_graph_has_not_is_refused(line, message):
    with pytest.raises(StudyError) as caught:
        loaded(line)
    assert message in str(caught.value)


OF_OPERATORS = [
    kind for kind in all_kinds().values() if issubclass(kind.params, OperatorParams)
]


@pytest.mark.parametrize("kind", OF_OPERATORS, ids=lambda kind: kind.name)
def test_every_input_of_an_operator_refuses_what_it_has_not(kind):
    of_a_graph = kind.params.model_validate({"operator": "modularity"})
    of_a_network = kind.params.model_validate({"operator": "ggn"})
    checked = 0
    for declared in kind.inputs.values():
        if declared.excludes:  # it stands beside an operator
            continue
        is_refused = {
            params.operator: "operator" in declared.settles
            or any(declared.lacking(params, "it", None) if declared.lacking else ())
            for params in (of_a_graph, of_a_network)
        }
        if issubclass(declared.edge, Weights | Trajectory):
            assert is_refused == {"modularity": True, "ggn": False}
            assert {*OF_GRAPHS} <= {*declared.settles}
        elif issubclass(declared.edge, Graph):
            assert is_refused == {"modularity": False, "ggn": True}
        elif issubclass(declared.edge, Matrix | Ritz):
            assert {"operator", *OF_GRAPHS} <= {*declared.settles}
        else:
            continue
        checked += 1
    assert checked


def test_every_kind_reads_atoms_or_refuses_what_lacks_them():
    deflate = find_kind("probe.spectrum").params(deflate=("twins",))
    apart = find_kind("probe.maxent").params(atoms="apart")
    reads = set()
    for kind in all_kinds().values():
        for name, declared in kind.inputs.items():
            if kind.home or not issubclass(declared.edge, Spectrum):
                continue
            params = kind.params.model_construct()
            for lacks, edge in ((deflate, Ritz), (apart, Density)):
                if not issubclass(edge, declared.edge):
                    continue
                said = declared.lacking and [*declared.lacking(params, "it", lacks)]
                refused = any("all eigenvalues" in text for _, text, _ in said or ())
                reads |= set() if refused else {(kind.name, name)}
    assert reads == {
        ("probe.moments", "ritz"),
        ("probe.cluster_count", "ritz"),
        ("probe.cluster_count", "density"),
        ("probe.graph_functionals", "ritz"),
        ("figure.density", "of"),
        ("figure.density", "density"),
    }
