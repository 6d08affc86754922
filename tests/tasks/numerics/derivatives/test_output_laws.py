"""Laws of targets: roots of Fisher matrices and Hessians of the outputs."""

import itertools
import math

import pytest
import torch
from torch.distributions import Bernoulli, Normal, Poisson
from torch.func import grad, hessian, vmap
from torch.nn import functional as F

from curvflow.errors import InputError
from curvflow.tasks.numerics import fisher_draws, fisher_roots, ggn_roots
from curvflow.tasks.numerics.derivatives.output_laws import (
    LAWS,
    bernoulli,
    counted_labels,
    fewest_roots,
    gaussian,
    mixture_bernoulli,
    mixture_means,
    poisson,
    poisson_counts,
)

MODELS, SAMPLES = 2, 3
NATURAL = {
    "bce": (bernoulli(), 2),
    "bce, summed": (bernoulli("sum"), 2),
    "poisson": (poisson(), 2),
    "poisson, summed": (poisson("sum"), 2),
}
OTHERS = {
    "gaussian": (gaussian(), 4),
    "gaussian, summed": (gaussian("sum"), 4),
    "mixture": (mixture_bernoulli(2), 4),
    "mixture of three": (mixture_bernoulli(3), 9),
}
NEW = NATURAL | OTHERS
OLD = {"cross_entropy": (LAWS["cross_entropy"], 3), "mse": (LAWS["mse"], 2)}


def drawn(*shape, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return torch.rand(*shape, generator=generator, dtype=torch.float64)


def outputs_of(size, seed=1):
    return 1.5 * (2 * drawn(MODELS, SAMPLES, size, seed=seed) - 1)


def values_of(law, size):
    """The number of values of a target."""
    match law.name:
        case "gaussian":
            return size // 2
        case "mixture_bernoulli":
            return law.uniforms(size)[0] - 1
    return size


def targets_of(law, size):
    if law.name == "cross_entropy":
        return torch.tensor([[0, 2, 1]])
    values = drawn(1, SAMPLES, values_of(law, size), seed=2)
    return (4 * values).floor() if law.name == "poisson" else values.round()


def loss_of(law):
    """The loss of one term, from outputs (C,) and target (V,)."""
    return lambda f, y: law.losses(f[None, None], y[None, None])[0, 0]


def gram(roots):
    return roots.mT @ roots


def averaged(law, outputs_C):
    """Targets of a term, with weights, whose average is that of the law.

    Bernoulli and mixture by all targets, Poisson by a truncated sum, Gaussian by the
    nodes of a quadrature, exact for polynomials.
    """
    size = len(outputs_C)
    match law.name:
        case "cross_entropy":
            return torch.arange(size), outputs_C.softmax(-1)
        case "bce":
            targets = torch.tensor([*itertools.product([0.0, 1.0], repeat=size)])
            logs = Bernoulli(logits=outputs_C).log_prob(targets.double()).sum(-1)
            return targets.double(), logs.exp()
        case "poisson":
            counts = torch.tensor([*itertools.product(range(50), repeat=size)])
            logs = Poisson(outputs_C.exp()).log_prob(counts.double()).sum(-1)
            return counts.double(), logs.exp()
        case "gaussian":
            means, scales = outputs_C[: size // 2], (outputs_C[size // 2 :] / 2).exp()
            r3 = math.sqrt(3)  # the three nodes of Gauss and Hermite
            nodes = [*itertools.product([-r3, 0.0, r3], repeat=size // 2)]
            nodes = torch.tensor(nodes, dtype=torch.float64)
            chances = torch.where(nodes == 0, 4.0, 1.0).double().div(6).prod(-1)
            return means + scales * nodes, chances
    values = values_of(law, size)
    targets = torch.tensor([*itertools.product([0.0, 1.0], repeat=values)]).double()
    losses = vmap(loss_of(law), (None, 0))(outputs_C, targets)
    return targets, (-losses).exp()


def near(result, expected, rtol=1e-10):
    torch.testing.assert_close(
        result, expected, rtol=0, atol=rtol * float(expected.abs().max())
    )


def num_terms(name, law, size):
    """The number of values whose losses are averaged."""
    one = "summed" in name or law.name in ("mixture_bernoulli", "cross_entropy")
    return 1 if one else values_of(law, size)


@pytest.mark.parametrize("name", [*NEW, "cross_entropy"])
def test_exact_roots_are_the_mean_over_the_targets_of_the_law(name):
    law, size = (NEW | OLD)[name]
    outputs, targets = outputs_of(size), targets_of(law, size)
    exact = gram(fisher_roots("exact", law, outputs, targets))
    empirical = gram(fisher_roots("empirical", law, outputs, targets))
    assert float((empirical - exact).abs().max()) > 0.01
    for place in itertools.product(range(MODELS), range(SAMPLES)):
        f = outputs[place]
        targets, chances = averaged(law, f)
        assert float(chances.sum()) == pytest.approx(1, abs=1e-11)
        scores = vmap(grad(loss_of(law)), (None, 0))(f, targets)
        terms = num_terms(name, law, size)
        # The scores of -log p are those of the sum of the losses of all values.
        moment = terms * torch.einsum("r,ri,rj->ij", chances, scores, scores)
        near(exact[place], moment)
        curvature = vmap(hessian(loss_of(law)), (None, 0))(f, targets)
        near(exact[place], torch.einsum("r,rij->ij", chances, curvature))


@pytest.mark.parametrize("name", NATURAL)
def test_the_hessian_of_natural_parameters_is_the_fisher_matrix(name):
    law, size = NATURAL[name]
    outputs, targets = outputs_of(size), targets_of(law, size)
    assert not law.depends_on_targets
    exact = gram(fisher_roots("exact", law, outputs, targets))
    for other in (targets, targets + 1):
        near(gram(ggn_roots(law.losses, outputs, other)), exact)
    near(gram(ggn_roots(law.losses, outputs, targets, loss=law)), exact)


@pytest.mark.parametrize("name", [*NATURAL, *LAWS])
def test_variances_are_all_of_the_exact_matrix_where_it_is_diagonal(name):
    law, size = (NEW | OLD).get(name) or (LAWS[name], 2)
    outputs = outputs_of(size)
    roots = law.roots("exact", outputs, drawn(MODELS, SAMPLES, size), None)
    matrices = roots.mT @ roots
    diagonals = matrices.diagonal(dim1=2, dim2=3)
    is_diagonal = torch.equal(matrices, torch.diag_embed(diagonals))
    assert (law.variances is not None) == (is_diagonal and not law.depends_on_targets)
    if law.variances is not None:
        torch.testing.assert_close(
            law.variances(outputs), diagonals, rtol=1e-14, atol=0
        )


@pytest.mark.parametrize("name", OTHERS)
def test_other_outputs_have_a_hessian_of_the_targets_that_is_indefinite(name):
    law, size = OTHERS[name]
    outputs, targets = outputs_of(size), targets_of(law, size)
    assert law.depends_on_targets
    first, second = (
        vmap(vmap(hessian(loss_of(law))), (0, None))(outputs, y[0])
        for y in (targets, 1 - targets)
    )
    exact = gram(fisher_roots("exact", law, outputs, targets))
    assert float((first - second).abs().max()) > 0.01
    assert float((first - exact).abs().max()) > 0.01
    values, vectors = torch.linalg.eigh(first)
    assert float(values.min()) < -0.01
    with pytest.raises(InputError, match=f"for {law.name}, got -") as refused:
        ggn_roots(law.losses, outputs, targets, loss=law)
    assert "\n" not in str(refused.value)
    assert "psd to clip" in str(refused.value)
    for psd, kept in (("clip", values.clamp(min=0)), ("abs", values.abs())):
        roots = ggn_roots(law.losses, outputs, targets, psd=psd)
        assert roots.shape == (MODELS, SAMPLES, size, size)
        near(gram(roots), vectors @ torch.diag_embed(kept) @ vectors.mT)
    near(gram(ggn_roots(law.losses, outputs, targets, psd="fisher", loss=law)), exact)


@pytest.mark.parametrize("name", NEW | OLD)
def test_rows_of_the_data_are_the_gradients_of_the_losses(name):
    law, size = (NEW | OLD)[name]
    outputs, targets = outputs_of(size), targets_of(law, size)
    rows = fisher_roots("empirical", law, outputs, targets)
    gradient = grad(lambda f: law.losses(f, targets).sum())(outputs)
    near(rows.squeeze(2), gradient)


@pytest.mark.parametrize("name", NEW)
def test_drawn_rows_have_the_exact_matrix_for_their_mean(name):
    law, size = NEW[name]
    draws, outputs = 4000, outputs_of(size)
    targets = targets_of(law, size)
    uniform = drawn(MODELS, SAMPLES, *fisher_draws(law, size, draws), seed=3)
    rows = draws**0.5 * fisher_roots("sampled", law, outputs, targets, uniform)
    exact = gram(fisher_roots("exact", law, outputs, targets))
    # Whole matrices by the scores' products, and the scores themselves, of mean 0.
    each = rows.unsqueeze(-1) * rows.unsqueeze(-2)
    errors = each.std(2) / draws**0.5 + 1e-12
    assert ((each.mean(2) - exact).abs() < 5 * errors).all()
    assert (rows.mean(2).abs() < 5 * rows.std(2) / draws**0.5 + 1e-12).all()


def test_losses_are_those_of_torch():
    f, y = outputs_of(4), drawn(1, SAMPLES, 4, seed=4)
    spread = y.expand_as(f)
    bce = F.binary_cross_entropy_with_logits(f, spread, reduction="none")
    near(bernoulli().losses(f, y), bce.mean(-1))
    near(bernoulli("sum").losses(f, y), bce.sum(-1))
    rates = F.poisson_nll_loss(f, spread, reduction="none")
    near(poisson("sum").losses(f, y), rates.sum(-1))
    means, logs = f.chunk(2, -1)
    halves = y[..., :2].expand_as(means)
    normal = -Normal(means, (logs / 2).exp()).log_prob(halves)
    constant = 0.5 * math.log(2 * math.pi)
    near(gaussian().losses(f, y[..., :2]), (normal - constant).mean(-1))
    near(gaussian("sum").losses(f, y[..., :2]), (normal - constant).sum(-1))


def test_a_mixture_is_that_of_its_equation():
    # Botev (2020), Eq. (4.28): two components by one logit, of one value.
    h1, h2, h3 = torch.tensor([0.3, -1.2, 0.8], dtype=torch.float64)
    outputs = torch.stack([h1, torch.zeros_like(h1), h2, h3])[None, None]
    chance = h1.sigmoid() * h2.sigmoid() + (1 - h1.sigmoid()) * h3.sigmoid()
    losses = mixture_bernoulli(2).losses
    near(losses(outputs, torch.ones(1, 1, 1).double())[0, 0], -chance.log())
    near(losses(outputs, torch.zeros(1, 1, 1).double())[0, 0], -(1 - chance).log())
    near(mixture_means(2, outputs)[0, 0, 0], chance)


def test_an_exact_mixture_of_more_targets_than_outputs_is_refused():
    law = mixture_bernoulli(2)
    outputs = torch.zeros(1, 1, 2 * 5).double()
    with pytest.raises(InputError, match="mixture_bernoulli, 10, got 4 values"):
        fisher_roots("exact", law, outputs, torch.zeros(1, 1, 4))
    rows = fisher_roots(
        "sampled", law, outputs, torch.zeros(1, 1, 4), drawn(1, 1, 3, 5)
    )
    assert rows.shape == (1, 1, 3, 10)


@pytest.mark.parametrize("rate", [0.0, 1e-3, 0.7, 4.0, 90.0, 2.5e4])
def test_counts_are_the_inverse_of_the_cumulative_law(rate):
    uniform = torch.linspace(0, 1 - 2**-53, 801, dtype=torch.float64)[1:]
    counts = poisson_counts(torch.tensor([rate]).double(), uniform)
    at_most = torch.special.gammaincc(counts + 1, torch.full_like(counts, rate))
    below = torch.special.gammaincc(counts, torch.full_like(counts, rate))
    assert (at_most > uniform).all()
    assert ((below <= uniform) | (counts == 0)).all()


def test_a_rate_that_is_not_finite_spoils_its_own_counts_alone():
    rates = torch.tensor([[torch.inf], [3.0], [torch.nan]]).double()
    uniform = drawn(3, 5)
    counts = poisson_counts(rates, uniform)
    assert counts[[0, 2]].isnan().all()
    torch.testing.assert_close(counts[1], poisson_counts(rates[1], uniform[1]))


def test_labels_that_count_in_part_have_their_share_of_the_rows():
    def losses(f, pairs):
        labels = pairs[..., 0].long().expand(f.shape[:-1])
        terms = F.cross_entropy(f.movedim(-1, 1), labels, reduction="none")
        return pairs[..., 1] * terms

    law, outputs = counted_labels(losses), outputs_of(3)
    pairs = torch.tensor([[[0, 0.0], [2, 1.3], [1, 0.2]]]).double()
    exact = gram(fisher_roots("exact", law, outputs, pairs))
    near(exact, gram(ggn_roots(losses, outputs, pairs)))
    assert not exact[:, 0].any()
    draws = 4000
    uniform = drawn(MODELS, SAMPLES, draws)
    rows = draws**0.5 * fisher_roots("sampled", law, outputs, pairs, uniform)
    each = rows.unsqueeze(-1) * rows.unsqueeze(-2)
    errors = each.std(2) / draws**0.5 + 1e-12
    assert ((each.mean(2) - exact).abs() < 5 * errors).all()


@pytest.mark.parametrize("scale", [0.1, 1.0, 1000.0])
def test_labels_of_one_less_than_the_outputs_have_the_same_matrix(scale):
    outputs, law = scale * outputs_of(5), LAWS["cross_entropy"]
    labels = torch.zeros(1, SAMPLES, dtype=torch.long)
    rows = fewest_roots(law, outputs, labels)
    assert rows.shape == (MODELS, SAMPLES, 4, 5)
    every = law.roots("exact", outputs, labels, None)
    torch.testing.assert_close(rows.mT @ rows, every.mT @ every, rtol=1e-12, atol=1e-15)


def test_weighted_labels_have_the_same_matrix_by_one_row_less():
    outputs, law = outputs_of(3), counted_labels(LAWS["cross_entropy"].losses)
    pairs = torch.tensor([[[0.0, 2.0], [1.0, 0.5], [0.0, 0.0]]], dtype=torch.float64)
    rows = fewest_roots(law, outputs, pairs)
    assert rows.shape[2] == 2
    every = law.roots("exact", outputs, pairs, None)
    torch.testing.assert_close(rows.mT @ rows, every.mT @ every, rtol=1e-12, atol=1e-15)


@pytest.mark.parametrize(
    "name", ["bce", "poisson", "gaussian", "mixture_bernoulli", "mse", "sse"]
)
def test_outputs_that_have_curvature_together_keep_all_rows(name):
    law, size = LAWS[name], 4
    outputs, targets = outputs_of(size), torch.zeros(1, SAMPLES, values_of(law, size))
    every = law.roots("exact", outputs, targets, None)
    assert torch.equal(fewest_roots(law, outputs, targets), every)


def test_a_loss_of_ones_own_has_roots_and_one_that_is_not_convex_none():
    outputs, targets = outputs_of(2), drawn(1, SAMPLES, 2)

    def logcosh(f, y):
        return (f - y).cosh().log().sum(-1) + 0.1 * f.sum(-1).square()

    def sines(f, y):
        return (f - y).sin().prod(-1)

    B = vmap(vmap(hessian(lambda f, y: logcosh(f, y))), (0, None))(outputs, targets[0])
    near(gram(ggn_roots(logcosh, outputs, targets)), B)
    with pytest.raises(InputError, match="for noise:sines, got -"):
        ggn_roots(sines, outputs, targets, loss="noise:sines")
    with pytest.raises(InputError, match="known likelihood for fisher, got noise"):
        ggn_roots(sines, outputs, targets, psd="fisher", loss="noise:sines")
    with pytest.raises(InputError, match="psd: expected one of refuse"):
        ggn_roots(sines, outputs, targets, psd="none")


def test_outputs_that_are_not_finite_spoil_their_own_roots_alone():
    outputs, targets = outputs_of(2), drawn(1, SAMPLES, 2)

    def logcosh(f, y):
        return (f - y).cosh().log().sum(-1)

    whole = ggn_roots(logcosh, outputs, targets)
    outputs[1, 0] = torch.nan
    roots = ggn_roots(logcosh, outputs, targets)
    assert roots[1, 0].isnan().all()
    assert torch.equal(roots[0], whole[0])
    assert torch.equal(roots[1, 1:], whole[1, 1:])


def test_sure_labels_have_no_negative_curvature():
    outputs = 40 * outputs_of(3)
    targets = torch.tensor([[0, 2, 1]])
    roots = ggn_roots(LAWS["cross_entropy"].losses, outputs, targets)
    exact = fisher_roots("exact", "cross_entropy", outputs, targets)
    torch.testing.assert_close(gram(roots), gram(exact), rtol=0, atol=1e-12)


def test_rows_without_numbers_or_a_law_are_refused():
    with pytest.raises(InputError, match="uniform: expected numbers"):
        fisher_roots("sampled", "mse", outputs_of(2), torch.zeros(1, SAMPLES, 2))
    with pytest.raises(InputError, match="loss: expected one of cross_entropy"):
        fisher_draws("huber", 2, 1)
