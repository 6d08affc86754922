"""Bounds of traces of functions, on random spectra whose functionals are known."""

from functools import cache, partial
from itertools import pairwise

import numpy as np
import pytest
import torch

from curvflow.tasks.numerics import (
    BatchedDense,
    Bernstein,
    Dense,
    RitzData,
    bounded,
    lanczos,
)
from curvflow.tasks.numerics.estimators.traces import random_vectors
from curvflow.tasks.numerics.krylov.functionals import (
    effective_dimension,
    floor_by_test,
    share_above,
    steps_needed,
)

CASES = range(40)


def eigenvalues(draw, size, *, negative):
    """Draw a spectrum: a law over decades with clusters, outliers and zeros."""
    low = -draw.uniform(0, 12)
    values = 10 ** draw.uniform(low, 0, size)
    law = draw.integers(4)
    if law == 1:
        values = 10 ** np.linspace(low, 0, size)
    if law == 2:
        values[: size // 2] = 10 ** draw.uniform(low, 0)
    if law == 3:
        values[: size // 3] = 0.0
    values[-3:] *= 10 ** draw.uniform(0, 4)
    if negative:
        part = draw.random(size) < draw.uniform(0, 0.4)
        values[part] *= -(10 ** draw.uniform(-6, 0))
    return torch.tensor(values * 10 ** draw.uniform(-3, 3))


class Case:
    """A random spectrum, runs on it, and the exact value of each run's v.f(A)v."""

    def __init__(self, number, negative):
        draw = np.random.default_rng(number)
        self.values_D = eigenvalues(
            draw, int(draw.integers(20, 400)), negative=negative
        )
        size, steps = len(self.values_D), int(draw.integers(2, 40))
        law = "gaussian" if draw.random() < 0.5 else "rademacher"
        vectors_1DS = random_vectors([number], size, range(6), law)
        operator = Dense(torch.diag(self.values_D))
        self.ritz = lanczos(operator, vectors_1DS[0], num_steps=steps)
        weights_DS = vectors_1DS[0].square()
        self.weights_DS = weights_DS / weights_DS.sum(0)
        self.scale = float(self.values_D.abs().max()) * 10 ** -draw.uniform(0, 8)

    def exact(self, f):
        """Return D v.f(A)v of each run, whose vectors have unit length."""
        return len(self.values_D) * f(self.values_D) @ self.weights_DS

    def trace(self, f):
        return float(f(self.values_D).sum())


made = cache(Case)


def case_of(number, *, negative=False):
    """Return a case, made once: many tests look at the same ones."""
    return made(number, negative)


def of_scaled(function, factor, x):
    return function(factor * x)


def is_within(found, exact_S):
    slack = 1e-7 * exact_S.abs().max() + 1e-12
    above = found.lower[0] <= exact_S + slack
    return above & (exact_S <= found.upper[0] + slack)


@pytest.mark.parametrize("negative", [False, True])
@pytest.mark.parametrize("number", CASES)
def test_each_run_s_value_lies_within_its_bounds(number, negative):
    case = case_of(number, negative=negative)
    f = share_above(case.scale)
    found = bounded(case.ritz, f)
    assert is_within(found, case.exact(f)).all()


@pytest.mark.parametrize("number", CASES)
def test_a_known_floor_bounds_the_same_values_more_closely(number):
    case = case_of(number)
    f = Bernstein(lambda x: (x / case.scale).log1p(), pole=-case.scale)
    free, known = bounded(case.ritz, f), bounded(case.ritz, f, floor=0.0)
    assert is_within(known, case.exact(f)).all()
    assert (known.upper <= free.upper * (1 + 1e-9) + 1e-12).all()


def test_runs_of_all_steps_are_exact():
    case = case_of(0)
    size = len(case.values_D)
    start = torch.ones(size, 3)
    ritz = lanczos(Dense(torch.diag(case.values_D)), start, num_steps=size)
    found = bounded(ritz, share_above(case.scale))
    torch.testing.assert_close(found.lower, found.upper)
    assert found.rule_error.item() == 0
    assert found.converged().item()


def share_of(scale, x):
    """Return a share as a function that says nothing of its derivatives."""
    return x.clamp_min(0) / (x.clamp_min(0) + scale)


@pytest.mark.parametrize(
    "function",
    [
        torch.tanh,
        torch.exp,
        torch.abs,
        torch.square,
        lambda x: torch.sin(20 * x),
        partial(share_of, 1e-2),
        partial(share_of, 1e-5),
        partial(share_of, 1e-9),
    ],
    ids=["tanh", "exp", "abs", "square", "sin", "1e-2", "1e-5", "1e-9"],
)
def test_values_of_any_function_lie_within_their_bounds(function):
    inside, converged = [], []
    for number in range(60):
        case = case_of(number, negative=number % 2 == 0)
        scaled = partial(of_scaled, function, 3 / float(case.values_D.abs().max()))
        found = bounded(case.ritz, scaled)
        inside += is_within(found, case.exact(scaled)).tolist()
        converged.append(found.converged(0.01).item())
    assert np.mean(inside) > 0.99
    assert any(converged)


def test_a_polynomial_of_the_degree_of_the_rule_is_exact():
    case = case_of(3)
    steps = case.ritz.values.shape[2]
    top = float(case.values_D.abs().max())
    exact, over = (
        bounded(case.ritz, lambda x, k=degree: (x / top) ** k)
        for degree in (2 * steps - 1, 2 * steps + 6)
    )
    assert exact.rule_error.item() < 1e-9 * len(case.values_D)
    assert over.rule_error.item() > exact.rule_error.item()


@pytest.fixture(scope="module")
def dimensions():
    """Return 300 cases with the bounds of a functional, and its true trace."""
    cases = [case_of(number, negative=number % 2 == 0) for number in range(300)]
    functions = [share_above(case.scale) for case in cases]
    return [
        (case, bounded(case.ritz, f), case.trace(f))
        for case, f in zip(cases, functions, strict=True)
    ]


def test_intervals_of_traces_cover(dimensions):
    covered, wide = [], []
    for case, found, truth in dimensions:
        low, high = (float(end) for end in found.interval())
        covered.append(low <= truth <= high)
        wide.append((high - low) / len(case.values_D))
    assert np.mean(covered) > 0.93
    # Six signs see these diagonals without error, but cannot know that they do.
    assert np.median(wide) < 0.25


def test_what_is_flagged_as_converged_is_within_its_errors(dimensions):
    right, unresolved = [], 0
    for _, found, truth in dimensions:
        mean = found.estimate.mean.item()
        if found.converged().item():
            limit = 2.6 * max(found.total.item(), 0.01 * mean)
            right.append(abs(truth - mean) <= limit)
        else:
            unresolved += 1
    assert len(right) > 50
    assert unresolved > 50
    assert np.mean(right) > 0.95


def test_ten_decades_that_a_hundred_steps_do_not_resolve_are_said_not_to_be():
    values_D = torch.logspace(-6, 2, 600, dtype=torch.float64)
    starts = random_vectors([0], 600, range(10), "rademacher")
    operator = Dense(torch.diag(values_D))
    found = effective_dimension(lanczos(operator, starts, num_steps=100), [1e-4])
    truth = float((values_D / (values_D + 1e-4)).sum())
    low, high = found.interval()
    assert low.item() < truth < high.item()
    assert not found.converged().item()
    error = abs(found.estimate.mean.item() - truth)
    assert error > 50 * found.estimate.sem.item()
    assert error < 2 * found.total.item()


def test_the_steps_said_to_be_needed_are_enough():
    values_D = torch.logspace(-6, 2, 600, dtype=torch.float64)
    starts = random_vectors([0], 600, range(4), "rademacher")
    operator, f = Dense(torch.diag(values_D)), share_above(1e-2)
    short = lanczos(operator, starts, num_steps=40)
    found = bounded(short, f, floor=0.0)
    needed = int(steps_needed(found, short, f, 1e-3, floor=0.0))
    assert 40 < needed < 600
    enough = bounded(lanczos(operator, starts, num_steps=needed), f, floor=0.0)
    assert enough.converged(1e-3).item()


def test_the_steps_said_to_be_needed_above_a_floor_are_enough_in_random_cases():
    predicted = 0
    for number in range(60):
        case = case_of(number)
        f, size = share_above(case.scale), len(case.values_D)
        found = bounded(case.ritz, f, floor=0.0)
        needed = int(steps_needed(found, case.ritz, f, 0.01, floor=0.0))
        predicted += case.ritz.steps.max() < needed < size
        if needed == size > 150:
            continue  # all steps, of which those of smaller cases are seen to be enough
        starts = random_vectors([number], size, range(6), "gaussian")
        operator = Dense(torch.diag(case.values_D))
        longer = bounded(lanczos(operator, starts, num_steps=needed), f, floor=0.0)
        assert longer.rule_error.item() <= 0.02 * longer.estimate.mean.item() + 1e-9
    assert predicted > 5


def test_without_a_floor_all_steps_are_said_to_be_needed():
    case = case_of(2, negative=True)
    f = share_above(case.scale)
    found = bounded(case.ritz, f)
    assert found.rule_error.item() > 0.01 * found.estimate.mean.item()
    assert steps_needed(found, case.ritz, f, None).item() == len(case.values_D)
    assert steps_needed(found, case.ritz, f, 1e3).item() == case.ritz.steps.max()


def test_the_interval_of_a_single_run_that_is_resolved_covers():
    covered, unknown = [], 0
    for number in range(300):
        case = case_of(number, negative=number % 2 == 0)
        f, of = share_above(case.scale), case.ritz
        first = (x[:, :1] for x in (of.values, of.weights, of.residuals, of.steps))
        alone = RitzData(*first, of.size)
        found = bounded(alone, f)
        low, high = found.interval()
        if (found.rule_error > found.estimate.sem).item():
            unknown += low.isnan().item() or high.isnan().item()
        else:
            covered.append(low.item() <= case.trace(f) <= high.item())
    assert len(covered) > 60
    assert unknown + len(covered) == 300
    assert np.mean(covered) > 0.93


def test_intervals_cover_where_the_nodes_do_not_see_what_the_function_resolves():
    covered = []
    for seed in range(60):
        draw = np.random.default_rng(seed)
        values = np.r_[np.zeros(100), draw.uniform(0.5, 1.5, 100)]
        starts = random_vectors([seed], 200, range(10), "gaussian")
        ritz = lanczos(Dense(torch.diag(torch.tensor(values))), starts[0], num_steps=5)
        low, high = bounded(ritz, share_above(1e-8), floor=0.0).interval()
        covered.append(low.item() <= 100 <= high.item())
    assert np.mean(covered) > 0.9


def test_one_step_has_the_error_of_its_draws():
    values = torch.logspace(-3, 0, 100).double()
    starts = random_vectors([0], 100, range(10), "gaussian")[0]
    ritz = lanczos(Dense(torch.diag(values)), starts, num_steps=1)
    found = bounded(ritz, lambda x: x).estimate
    assert found.sem.item() == pytest.approx(float(found.draws.std()) / 10**0.5)


def test_all_eigenvalues_have_no_interval():
    values_D = torch.linspace(1, 2, 30, dtype=torch.float64)
    whole = lanczos(Dense(torch.diag(values_D)), torch.ones(30, 1), num_steps=30)
    low, high = bounded(whole, share_above(1.0)).interval()
    truth = float((values_D / (values_D + 1)).sum())
    assert low.item() == pytest.approx(truth)
    assert high.item() == pytest.approx(truth)


LOG = Bernstein(torch.log, pole=0.0, is_clamped=False)


def test_a_floor_that_passes_its_test_is_below_the_spectrum_and_bounds_the_logarithm():
    below, inside = [], []
    for number in range(200):
        case = case_of(number)
        floor = floor_by_test(case.ritz) if (case.values_D > 0).all() else None
        if floor is not None:
            below.append(floor <= case.values_D.min())
            found = bounded(case.ritz, LOG, floor=floor)
            inside.append(is_within(found, case.exact(torch.log)).all())
    assert len(below) > 20
    assert np.mean(below) > 0.97
    assert np.mean(inside) > 0.97


def test_nothing_bounds_a_logarithm_over_an_end_that_is_not_resolved():
    values_D = torch.logspace(-6, 2, 400, dtype=torch.float64)
    starts = random_vectors([0], 400, range(10), "gaussian")
    ritz = lanczos(Dense(torch.diag(values_D)), starts, num_steps=100)
    assert floor_by_test(ritz) is None
    assert bounded(ritz, LOG).lower.isinf().any()


def test_a_hidden_negative_eigenvalue_lets_no_floor_pass():
    values_D = torch.cat([torch.tensor([-1e-7]), torch.linspace(1e-3, 1, 99)]).double()
    starts = random_vectors([1], 100, range(10), "gaussian")
    ritz = lanczos(Dense(torch.diag(values_D)), starts, num_steps=12)
    assert floor_by_test(ritz) is None


def network_hessian(rng):
    """Return the Hessian of a random network's mean loss on the corners of XOR."""
    widths = [2, *rng.integers(2, 6, size=rng.integers(1, 3)).tolist(), 2]
    shapes = [s for ins, outs in pairwise(widths) for s in ((outs, ins), (outs,))]
    sizes = [int(np.prod(shape)) for shape in shapes]
    corners = torch.tensor([[0, 0], [0, 1], [1, 0], [1, 1]]).double()
    w_D = torch.as_tensor(rng.uniform(0.3, 1.5) * rng.normal(size=sum(sizes)))

    def loss(w_D):
        x = corners
        parts = torch.split(w_D, sizes)
        for layer in range(0, len(parts), 2):
            x = torch.tanh(x) if layer else x
            x = x @ parts[layer].view(shapes[layer]).T + parts[layer + 1]
        return torch.nn.functional.cross_entropy(x, torch.tensor([0, 1, 1, 0]))

    return torch.autograd.functional.hessian(loss, w_D)


@pytest.mark.parametrize("law", ["rademacher", "gaussian"])
def test_regular_coefficients_of_random_networks_are_covered(law):
    repetitions, shares = 60, []
    for case in range(16):
        rng = np.random.default_rng(case)
        H_DD = network_hessian(rng)
        h_D, size = torch.linalg.eigvalsh(H_DD).clamp_min(0), len(H_DD)
        z_MDS = random_vectors(
            range(repetitions), size, range(rng.integers(3, 16)), law
        )
        starts_MDS = z_MDS / z_MDS.norm(dim=1, keepdim=True)
        operator = BatchedDense(H_DD.expand(repetitions, -1, -1))
        ritz = lanczos(operator, starts_MDS, num_steps=size)
        precision = 10 ** rng.uniform(-5, -1)
        truth = (h_D / (h_D + precision)).sum() / 2
        low_M, high_M = bounded(ritz, share_above(precision, factor=0.5)).interval()
        slack = 1e-7 * truth
        held_M = (low_M - slack <= truth) & (truth <= high_M + slack)
        shares.append(held_M.double().mean())
    share = torch.stack(shares)
    error = (0.95 * 0.05 / repetitions) ** 0.5
    assert 0.95 - 3 * error / len(shares) ** 0.5 < share.mean() < 0.985
    assert share.min() > 0.95 - 4 * error
