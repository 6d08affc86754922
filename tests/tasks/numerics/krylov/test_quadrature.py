"""What Ritz data tell, against the measure of the very vectors."""

import re
from pathlib import Path

import numpy as np
import pytest
import torch

from curvflow.errors import InputError
from curvflow.tasks.numerics import BatchedDense, stream
from curvflow.tasks.numerics.krylov.functionals import (
    Bernstein,
    bounded,
    effective_dimension,
)
from curvflow.tasks.numerics.krylov.lanczos import lanczos
from curvflow.tasks.numerics.krylov.quadrature import (
    functional,
    moments,
    radau_rule,
)
from curvflow.tasks.numerics.krylov.ritz_spectra import degeneracy, mass
from tests.tasks.toys import random_symmetric, with_spectrum

SIZE = 60
SPECTRA = [
    np.linspace(-1, 3, SIZE),
    np.concatenate([np.zeros(30), np.linspace(0.5, 2, 30)]),
    np.geomspace(1e-4, 10, SIZE),
    np.ones(SIZE),
]


def signs(models, size, count, seed=0):
    generator = stream(seed, "t")
    shape = (models, size, count)
    return torch.randn(shape, generator=generator, dtype=torch.float64).sign()


@pytest.fixture(scope="module")
def known():
    """Ritz data of ten steps, and the exact measure of their vectors."""
    A = torch.stack([with_spectrum(s, seed=n) for n, s in enumerate(SPECTRA)])
    start = signs(len(A), SIZE, 6)
    values, vectors = torch.linalg.eigh(A)
    weights = (vectors.mT @ start).square() / SIZE
    return lanczos(BatchedDense(A), start, num_steps=10), values, weights


def across(value):
    return torch.full((len(SPECTRA),), value, dtype=torch.float64)


def test_the_trace_is_that_of_the_vectors_with_its_standard_error(known):
    ritz, values, weights = known
    result = functional(ritz, lambda x: x)
    draws = SIZE * (weights * values.unsqueeze(2)).sum(1)
    torch.testing.assert_close(result.draws, draws, rtol=1e-10, atol=1e-10)
    mean = values.mean(1)
    law = 2 * SIZE / (SIZE + 2) * (values - mean[:, None]).square().sum(1) / 6
    torch.testing.assert_close(result.sem, law.sqrt(), rtol=0.25, atol=1e-12)
    assert result.count == 6
    assert result.sem[3] < 1e-12


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_a_trace_of_a_function_is_within_five_standard_errors(seed):
    A = with_spectrum(np.linspace(0.1, 2, SIZE), seed=seed)[None]
    ritz = lanczos(BatchedDense(A), signs(1, SIZE, 30, seed), num_steps=15)
    result = functional(ritz, torch.log)
    assert abs(result.mean - np.log(np.linspace(0.1, 2, SIZE)).sum()) < 5 * result.sem


def test_a_single_run_has_the_error_of_its_law_and_no_interval_of_a_mass():
    A = with_spectrum(np.linspace(0.1, 2, SIZE), seed=0)[None]
    alone = functional(
        lanczos(BatchedDense(A), signs(1, SIZE, 1), num_steps=15), torch.exp
    )
    many = functional(
        lanczos(BatchedDense(A), signs(1, SIZE, 90), num_steps=15), torch.exp
    )
    assert alone.sem.item() == pytest.approx(many.sem.item() * 90**0.5, rel=0.3)
    ritz = lanczos(BatchedDense(torch.eye(4)[None]), torch.ones(1, 4, 1), num_steps=2)
    low, high = mass(ritz, torch.zeros(1), torch.ones(1)).interval()
    assert (low.item(), high.item()) == (0, 1)


@pytest.mark.parametrize("basis", ["power", "chebyshev"])
def test_moments_up_to_2m_minus_1_are_exact(known, basis):
    ritz, values, weights = known
    support = (-1.5, 10.5)
    result = moments(ritz, 19, basis=basis, support=support)
    for order in range(20):
        if basis == "power":
            terms = values**order
        else:
            scaled = (2 * values - sum(support)) / (support[1] - support[0])
            terms = torch.cos(order * torch.arccos(scaled))
        exact = (weights * terms.unsqueeze(2)).sum(1)
        torch.testing.assert_close(result[:, order], exact, rtol=1e-9, atol=1e-11)


def test_moments_beyond_the_rule_are_refused_unless_it_is_exact(known):
    with pytest.raises(InputError, match="order: expected at most 19 from 10 steps"):
        moments(known[0], 20)
    exact = lanczos(BatchedDense(torch.eye(4)[None]), torch.ones(1, 4, 1), num_steps=2)
    assert moments(exact, 9)[0, :, 0].tolist() == [1] * 10


def test_gauss_and_radau_enclose_the_logarithm_of_every_vector():
    A = with_spectrum(np.geomspace(1e-3, 1, SIZE), seed=0)[None]
    start = signs(1, SIZE, 5)
    values, vectors = torch.linalg.eigh(A)
    exact = ((vectors.mT @ start).square() * values.log().unsqueeze(2)).sum(1)
    widths = []
    for num_steps in (4, 8, 16):
        ritz = lanczos(BatchedDense(A), start, num_steps=num_steps)
        log = Bernstein(torch.log, pole=0.0, is_clamped=False)
        result = bounded(ritz, log, floor=1e-3)
        assert (result.lower <= exact + 1e-9).all()
        assert (result.upper >= exact - 1e-9).all()
        widths.append((result.upper - result.lower).mean().item())
    assert widths[0] > 2 * widths[1] > 4 * widths[2] > 0


def test_a_radau_rule_holds_its_node_and_is_exact_to_degree_2m(known):
    ritz, values, weights = known
    nodes, masses = radau_rule(ritz, torch.full(ritz.steps.shape, -1.25).double())
    assert ((nodes + 1.25).abs().amin(2) < 1e-12).all()
    exact = (weights * values.unsqueeze(2) ** 20).sum(1)
    torch.testing.assert_close(
        (masses * nodes**20).sum(2)[:3], exact[:3], rtol=1e-8, atol=0
    )
    torch.testing.assert_close(masses.sum(2), torch.ones_like(masses.sum(2)))


@pytest.mark.parametrize(
    ("low", "high"),
    [(-0.01, 0.01), (0.3, 1), (-5, 0.2), (1, 1), (0, 0), (-np.inf, 1), (0.5, np.inf)],
)
def test_bounds_hold_the_mass_of_every_vector(known, low, high):
    ritz, values, weights = known
    result = mass(ritz, across(low), across(high))
    inside = (values >= low - 1e-12) & (values <= high + 1e-12)
    exact = (weights * inside.unsqueeze(2)).sum(1)
    assert (result.lower <= exact + 1e-9).all()
    assert (result.upper >= exact - 1e-9).all()
    assert (result.lower <= result.estimate.draws + 1e-9).all()
    assert (result.upper >= result.estimate.draws - 1e-9).all()


def test_an_atom_away_from_the_rest_is_weighed_exactly(known):
    ritz, _, weights = known
    result = mass(ritz, across(-0.1), across(0.1))
    exact = weights[1, :30].sum(0)
    torch.testing.assert_close(result.estimate.draws[1], exact, rtol=1e-6, atol=0)
    assert (result.upper - result.lower)[1].max() < 1e-4
    low, high = result.interval()
    assert low[1] < exact.mean() < high[1]


def test_degeneracy_is_the_weight_nearest_to_zero(known):
    ritz, _, weights = known
    result = degeneracy(ritz)
    torch.testing.assert_close(result.weight.draws[1], weights[1, :30].sum(0))
    assert result.value.draws[1].abs().max() < 1e-6
    assert result.weight.draws[3].tolist() == pytest.approx([1] * 6)
    two = degeneracy(ritz, 2)
    assert (two.weight.draws[:3] > result.weight.draws[:3]).all()


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_the_effective_dimension_is_within_five_standard_errors(seed):
    spectrum = np.concatenate([np.linspace(-1, 0, 10), np.geomspace(0.01, 9, 30)])
    A = with_spectrum(spectrum, seed=seed)[None]
    ritz = lanczos(BatchedDense(A), signs(1, 40, 40, seed), num_steps=40)
    result = effective_dimension(ritz, [0.01, 0.1, 1.0])
    positive = spectrum.clip(0)
    for n, precision in enumerate([0.01, 0.1, 1.0]):
        exact = (positive / (positive + precision)).sum()
        estimate = result.estimate
        assert abs(estimate.mean[0, n] - exact) < 5 * estimate.sem[0, n]


def test_what_is_read_does_not_depend_on_siblings():
    A = torch.stack([random_symmetric(20, seed=n) for n in range(3)])
    whole = lanczos(BatchedDense(A), signs(3, 20, 4), num_steps=6)
    alone = lanczos(BatchedDense(A[[1, 1]]), signs(3, 20, 4)[[1, 1]], num_steps=6)
    ends = torch.full((3,), -1.0).double(), torch.full((3,), 2.0).double()
    one = mass(whole, *ends).lower[1]
    two = mass(alone, ends[0][:2], ends[1][:2]).lower[0]
    torch.testing.assert_close(one, two, rtol=1e-9, atol=1e-11)
    torch.testing.assert_close(
        functional(whole, torch.sin).mean[1], functional(alone, torch.sin).mean[0]
    )


def test_the_readings_shown_in_the_docs_are_those_of_a_known_spectrum():
    page = Path(__file__).parents[4] / "docs" / "spectrum.md"
    (code,) = re.findall(
        r"^```python\n(.*?)^```", page.read_text(encoding="utf-8"), re.DOTALL | re.M
    )
    shown: dict = {}
    exec(code, shown)
    values = np.linspace(0, 2, 50)
    A = with_spectrum(values, seed=0)[None]
    curve, squares, (low, high) = shown["readings"](A)
    assert (curve.sum() * 4 / 199).item() == pytest.approx(1, abs=0.01)
    assert squares.item() == pytest.approx((values**2).sum(), rel=0.3)
    assert low < high
    assert low.item() == pytest.approx(np.log(values + 0.1).sum(), abs=10)
