"""Random functions of torch, drawn from a source given."""

import pytest
import torch
from scipy import stats
from torch import nn
from torch.nn import functional as F

from curvflow.tasks.networks.draws import Drawn

x = torch.linspace(-2, 3, 2 * 4 * 3 * 3, dtype=torch.float64).reshape(2, 4, 3, 3)
rows = x.flatten(2)
mha = nn.MultiheadAttention(9, 3, dropout=0.4, batch_first=True).double()

# What draws, and the shapes that are drawn.
DRAWING = {
    "dropout": (lambda: F.dropout(x, 0.4), [x.shape]),
    "in place": (lambda: nn.Dropout(0.4, inplace=True)(x.clone()), [x.shape]),
    "torch": (lambda: torch.dropout(x, 0.4, True), [x.shape]),
    "channels 1d": (lambda: nn.Dropout1d(0.4)(rows), [(2, 4, 1)]),
    "channels 2d": (lambda: nn.Dropout2d(0.4)(x), [(2, 4, 1, 1)]),
    "channels 3d": (lambda: nn.Dropout3d(0.4)(x[..., None]), [(2, 4, 1, 1, 1)]),
    "alpha": (lambda: nn.AlphaDropout(0.4)(x), [x.shape]),
    "alpha channels": (lambda: nn.FeatureAlphaDropout(0.4)(x), [(2, 4, 1, 1)]),
    "rrelu": (lambda: nn.RReLU()(x), [x.shape]),
    "gumbel": (lambda: F.gumbel_softmax(x), [x.shape]),
    "attention": (
        lambda: F.scaled_dot_product_attention(rows, rows, rows, dropout_p=0.4),
        [(2, 4, 4)],
    ),
    "heads": (
        lambda: mha(rows, rows, rows, need_weights=False)[0],
        [(2, 3, 4, 4)],
    ),
    "heads with weights": (lambda: mha(rows, rows, rows)[0], [(6, 4, 4)]),
    "rand": (lambda: torch.rand(2, 3), [(2, 3)]),
    "rand of a size": (lambda: torch.rand(size=(2, 3)), [(2, 3)]),
    "rand like": (lambda: torch.rand_like(x), [x.shape]),
    "randn": (lambda: torch.randn((2, 3), dtype=torch.float64), [(2, 3)]),
    "randn like": (lambda: torch.randn_like(x), [x.shape]),
    "integers": (lambda: torch.randint(5, (7,)), [(7,)]),
    "integers like": (lambda: torch.randint_like(x, 2, 5), [x.shape]),
    "permutation": (lambda: torch.randperm(6), [(6,)]),
    "bernoulli": (lambda: torch.bernoulli(x.clamp(0, 1)), [x.shape]),
    "bernoulli in place": (lambda: x.clone().bernoulli_(0.3), [x.shape]),
    "normal": (lambda: torch.normal(x, 2.0), [x.shape]),
    "normal of a size": (lambda: torch.normal(1.0, 2.0, (3, 2)), [(3, 2)]),
    "normal in place": (lambda: x.clone().normal_(1, 2), [x.shape]),
    "uniform in place": (lambda: x.clone().uniform_(1, 2), [x.shape]),
    "exponential": (lambda: x.clone().exponential_(2), [x.shape]),
}


def source(seed, shapes):
    generator = torch.Generator().manual_seed(seed)

    def uniform(shape):
        shapes.append(tuple(shape))
        return torch.rand(shape, generator=generator, dtype=torch.float64)

    return uniform


def drawn(compute, seed=0):
    shapes = []
    with Drawn(source(seed, shapes)):
        return compute(), shapes


@pytest.mark.parametrize(("compute", "shapes"), DRAWING.values(), ids=DRAWING)
def test_numbers_come_from_the_source_alone(compute, shapes):
    before = torch.random.get_rng_state()
    (first, asked), (again, _), (other, _) = (drawn(compute, s) for s in (0, 0, 1))
    assert asked == [tuple(shape) for shape in shapes]
    assert torch.equal(before, torch.random.get_rng_state())
    assert torch.equal(first, again)
    assert not torch.equal(first, other)
    plain = compute()
    assert (first.shape, first.dtype) == (plain.shape, plain.dtype)


@pytest.mark.parametrize(
    "compute",
    [
        lambda: nn.Dropout(0.4).eval()(x),
        lambda: nn.AlphaDropout(0.0)(x),
        lambda: nn.RReLU().eval()(x),
        lambda: F.scaled_dot_product_attention(rows, rows, rows),
        lambda: torch.rand(3, generator=torch.Generator().manual_seed(3)),
        lambda: F.softmax(x, dim=-1),
    ],
)
def test_what_draws_nothing_from_the_source_is_as_it_was(compute):
    actual, shapes = drawn(compute)
    assert shapes == []
    assert torch.equal(actual, compute())


def many(compute):
    return drawn(compute, seed=4)[0].double().flatten()


@pytest.mark.parametrize(
    ("compute", "law"),
    [
        (lambda: torch.rand(4000), stats.uniform()),
        (lambda: torch.randn(4000), stats.norm()),
        (lambda: torch.normal(1.0, 2.0, (4000,)), stats.norm(1, 2)),
        (lambda: torch.empty(4000).exponential_(2.0), stats.expon(scale=0.5)),
        (lambda: torch.empty(4000).uniform_(-1, 3), stats.uniform(-1, 4)),
    ],
)
def test_numbers_have_their_law(compute, law):
    assert stats.kstest(many(compute).numpy(), law.cdf).pvalue > 0.01


@pytest.mark.parametrize(
    ("compute", "shares"),
    [
        (lambda: torch.randint(2, 5, (9000,)), [0, 0, 1 / 3, 1 / 3, 1 / 3]),
        (lambda: torch.empty(9000).bernoulli_(0.3), [0.7, 0.3]),
        (lambda: torch.bernoulli(torch.full((9000,), 0.3)), [0.7, 0.3]),
        (lambda: torch.randperm(5), [0.2] * 5),
    ],
)
def test_whole_numbers_have_their_shares(compute, shares):
    counted = torch.bincount(many(compute).long()).double()
    torch.testing.assert_close(
        counted / counted.sum(), torch.tensor(shares).double(), rtol=0, atol=0.02
    )


@pytest.mark.parametrize("layer", [nn.Dropout(0.3), nn.AlphaDropout(0.3)])
def test_moments_are_kept(layer):
    normal = torch.randn(20000, generator=torch.Generator().manual_seed(1))
    dropped = many(lambda: layer(normal))
    assert float(dropped.mean()) == pytest.approx(0, abs=0.03)
    wanted = 1 if isinstance(layer, nn.AlphaDropout) else 1 / 0.7
    assert float(dropped.var()) == pytest.approx(wanted, rel=0.05)


@pytest.mark.parametrize("masked", ["", "causal", "flags", "added"])
def test_attention_drops_its_weights(masked):
    later = torch.ones(4, 4, dtype=torch.bool).triu(1)
    mask = {"flags": ~later, "added": later * -2.0}.get(masked)
    given = {"attn_mask": mask, "is_causal": masked == "causal"}
    with Drawn(lambda shape: torch.full(shape, 0.9).double()):  # nothing is dropped
        actual = F.scaled_dot_product_attention(
            rows, rows, rows, dropout_p=0.5, **given
        )
    kept = F.scaled_dot_product_attention(rows, rows, rows, **given)
    torch.testing.assert_close(actual, 2 * kept)


def test_queries_may_share_keys():
    query = torch.arange(2 * 4 * 3 * 5).reshape(2, 4, 3, 5).double().sin()
    few = query[:, :2].cos()
    with Drawn(lambda shape: torch.full(shape, 0.9).double()):
        actual = F.scaled_dot_product_attention(
            query, few, few, dropout_p=0.5, enable_gqa=True
        )
    each = few.repeat_interleave(2, 1)
    kept = F.scaled_dot_product_attention(query, each, each)
    torch.testing.assert_close(actual, 2 * kept)
