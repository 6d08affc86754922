"""Kronecker factors of modules without a study."""

import numpy as np
import pytest
import torch
from torch import nn
from torch.func import functional_call, hessian, jacrev
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset

import curvflow
from curvflow.errors import InputError
from tests.tasks.toys import blobs, train_all, train_member

LOSSES = {
    "cross_entropy": nn.CrossEntropyLoss(),
    "mse": "mse",
    "huber": nn.SmoothL1Loss(),
    "poisson": "poisson",
}


def made(loss, samples=6):
    with torch.random.fork_rng():
        torch.manual_seed(0)
        net = nn.Sequential(
            nn.Unflatten(1, (1, 5)), nn.Conv1d(1, 2, 3), nn.Tanh(), nn.Flatten(),
            nn.Linear(6, 3),
        ).double()  # fmt: skip
        inputs = torch.randn(samples, 5).double()
        values = torch.rand(samples, 3).double()
        labels = torch.randint(3, (samples,))
    return net, inputs, labels if loss == "cross_entropy" else values


@pytest.mark.parametrize("name", LOSSES)
def test_blocks_are_those_of_the_operator(name):
    net, inputs, targets = made(name)
    given = net, LOSSES[name], (inputs, targets)
    G = curvflow.ggn(*given) @ torch.eye(29).double()
    K = curvflow.kronecker(*given, structure="block", psd="clip")
    dense = K @ torch.eye(29).double()
    for rows in (slice(0, 8), slice(8, 29)):
        torch.testing.assert_close(dense[rows, rows], G[rows, rows])
    assert float(dense[:8, 8:].abs().max()) == 0
    inverse = torch.linalg.inv(dense + 0.1 * torch.eye(29).double())
    torch.testing.assert_close(K.solve(torch.eye(29).double(), 0.1), inverse)
    exact = torch.logdet(dense + 0.1 * torch.eye(29).double())
    assert K.logdet(0.1) == pytest.approx(float(exact))


CHAINS = {
    "tanh": nn.Tanh,
    "relu in place": lambda: nn.ReLU(inplace=True),
    "linear": nn.Identity,
}


def make_chain(name):
    return nn.Sequential(nn.Linear(3, 4), CHAINS[name](), nn.Linear(4, 3))


@pytest.mark.parametrize("name", CHAINS)
def test_blocks_of_the_hessian_of_a_module_are_those_of_torch(name):
    torch.manual_seed(1)
    net = make_chain(name).double()
    inputs, labels = torch.randn(7, 3).double(), torch.arange(7) % 3
    given = net, "cross_entropy", (inputs, labels)
    K = curvflow.kronecker(*given, curvature="hessian", structure="block")
    H = curvflow.hessian(*given) @ torch.eye(31).double()
    dense = K @ torch.eye(31).double()
    for rows in (slice(0, 16), slice(16, 31)):
        torch.testing.assert_close(dense[rows, rows], H[rows, rows])
    assert not dense[:16, 16:].any()


def test_recursions_of_a_module_are_those_of_the_same_network_of_the_package():
    factory = "tests.tasks.probes.kronecker.test_library:make_chain"
    models = (
        {"factory": factory, "kwargs": {"name": "tanh"}},
        {"kind": "mlp", "hidden": [4], "activation": "tanh"},
    )
    rule = {"rule": "kfac", "fisher_type": "recursive", "init": {"normal": 0.3}}
    weights = []
    for model in models:
        members = [
            train_member(blobs(), model=model, rule=rule, seed=s) for s in (0, 1)
        ]
        weights.append([fit.arrays["weights"] for fit in train_all(members)])
    np.testing.assert_allclose(*weights, rtol=1e-6, atol=1e-9)


def test_batches_are_all_samples_together():
    net, inputs, targets = made("mse")
    whole = curvflow.kronecker(net, "mse", (inputs, targets))
    parts = [(inputs[:2], targets[:2]), (inputs[2:], targets[2:])]
    apart = curvflow.kronecker(net, "mse", parts)
    vector = torch.arange(29).double()
    torch.testing.assert_close(whole @ vector, apart @ vector)


def test_the_factored_inverse_is_of_both_damped_factors():
    net, inputs, targets = made("cross_entropy")
    K = curvflow.kronecker(net, "cross_entropy", (inputs, targets), layers=["4.*"])
    (block,) = K.blocks.blocks
    damping, vector = 0.3, torch.arange(21).double()
    left, right = block.left_factor[0, 0], block.right_factor[0, 0]
    ratio = (right.trace() / 7 / (left.trace() / 3)).sqrt()
    eyes = torch.eye(3).double(), torch.eye(7).double()
    whole = torch.kron(
        left + eyes[0] * damping**0.5 / ratio, right + eyes[1] * damping**0.5 * ratio
    )
    # In a block the bias is the last column of its weight.
    places = block.columns
    expected = torch.zeros(21).double()
    expected[places] = torch.linalg.solve(whole, vector[places])
    torch.testing.assert_close(K.solve(vector, damping, pi="trace"), expected)
    excess = whole - torch.kron(left, right) - damping * torch.eye(21).double()
    assert torch.linalg.eigvalsh(excess).min() > -1e-12


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"structure": "low-rank"}, r"^structure: "),
        ({"layers": ["dense.*"]}, r"^params: expected names of parameters"),
        ({"curvature": "hessian"}, r"^fisher_type: expected dense layers"),
        ({"damping": 1.0}, r"^damping: expected one of"),
    ],
    ids=["structure", "layers", "chain", "unknown"],
)
def test_what_cannot_be_taken_is_refused_in_one_line(given, message):
    net, inputs, targets = made("cross_entropy")
    with pytest.raises(InputError, match=message):
        curvflow.kronecker(net, "cross_entropy", (inputs, targets), **given)


def test_a_parameter_without_entries_is_refused_by_its_name():
    net, inputs, targets = made("cross_entropy")
    net.register_parameter("rest", nn.Parameter(torch.zeros(0, 4).double()))
    of = net, "cross_entropy", (inputs, targets)
    message = r"got 'rest' of shape \(0, 4\)\. Remove it, or take the others by layers"
    with pytest.raises(InputError, match=message):
        curvflow.kronecker(*of)
    assert curvflow.kronecker(*of, layers=["4.*"]).logdet(1.0) > 0
    assert curvflow.ggn(*of).shape == (29, 29)


def test_negative_damping_and_drawn_labels_of_unknown_losses_are_refused():
    net, inputs, targets = made("huber")
    given = net, nn.SmoothL1Loss(), (inputs, targets)
    with pytest.raises(InputError, match=r"^damping: expected a number of at least 0"):
        curvflow.kronecker(*given).solve(torch.ones(29).double(), -1.0)
    with pytest.raises(InputError, match=r"^fisher_type: mc cannot be combined"):
        curvflow.kronecker(*given, fisher_type="mc")


LOSSES_OF_BATCHES = {
    "weights": nn.CrossEntropyLoss,
    "function": lambda weight: lambda f, y: F.cross_entropy(f, y, weight=weight),
    "contrast": lambda _: lambda f, y: (f @ f.T).logsumexp(1).mean(),
    "centred": lambda _: lambda f, y: (f - f.mean(0)).square().mean(),
    "sum": lambda _: lambda f, y: F.cross_entropy(f, y, reduction="sum"),
}


def batches_of(inputs, targets, generator):
    """Return ragged batches, some of one sample."""
    cuts = torch.randperm(len(inputs) - 1, generator=generator)[:5].sort().values + 1
    parts = (t.tensor_split(cuts.tolist()) for t in (inputs, targets))
    return list(zip(*parts, strict=True))


@pytest.mark.parametrize("is_sorted", [True, False], ids=["sorted", "mixed"])
@pytest.mark.parametrize("name", LOSSES_OF_BATCHES)
def test_a_loss_that_is_no_mean_over_samples_is_refused_whatever_the_batches(
    name, is_sorted
):
    for seed in range(2):
        generator = torch.Generator().manual_seed(seed)
        net, inputs, _ = made("mse", samples=12)
        labels = torch.randint(3, (12,), generator=generator)
        labels[:3] = torch.arange(3)
        labels = labels.sort().values if is_sorted else labels
        loss = LOSSES_OF_BATCHES[name](torch.tensor([1.0, 2.0, 5.0]).double())
        apart = [
            (inputs[rows], labels[rows]) for rows in (labels == c for c in range(3))
        ]
        singles = [(inputs[n : n + 1], labels[n : n + 1]) for n in range(12)]
        ragged = batches_of(inputs, labels, generator)
        loader = DataLoader(TensorDataset(inputs, labels), batch_size=4)
        for data in ((inputs, labels), apart, singles, ragged, loader):
            for make in (
                lambda *given: curvflow.kronecker(*given, psd="clip"),
                lambda *given: curvflow.fisher(*given, kind="empirical"),
                curvflow.gradient_covariance,
            ):
                with pytest.raises(InputError, match=r"^loss: expected the mean of"):
                    make(net, loss, data)


def means(generator):
    """Return losses of labels that are means over samples."""
    weight = torch.rand(3, generator=generator).double() + 0.1
    return {
        "each": nn.CrossEntropyLoss(weight=weight, reduction="none"),
        "smooth": nn.CrossEntropyLoss(label_smoothing=0.2),
        "function": lambda f, y: weight[y] * F.cross_entropy(f, y, reduction="none"),
        "mse": lambda f, y: F.mse_loss(f, F.one_hot(y, 3).to(f)),
    }


@pytest.mark.parametrize("seed", range(2))
def test_means_over_samples_are_taken_in_any_batches(seed):
    generator = torch.Generator().manual_seed(seed)
    net, inputs, _ = made("mse", samples=12)
    labels = torch.randint(3, (12,), generator=generator).sort().values
    for loss in means(generator).values():
        whole = curvflow.kronecker(net, loss, (inputs, labels), structure="diag")
        ragged = batches_of(inputs, labels, generator)
        apart = curvflow.kronecker(net, loss, ragged, structure="diag")
        vector = torch.ones(29).double()
        torch.testing.assert_close(apart @ vector, whole @ vector)
        second = curvflow.fisher(net, loss, ragged, kind="empirical")
        expected = moments(net, loss, inputs, labels)
        torch.testing.assert_close(second @ torch.eye(29).double(), expected)


def moments(net, loss, inputs, targets):
    rows = []
    for n in range(len(inputs)):
        value = loss(net(inputs[n : n + 1]), targets[n : n + 1]).mean()
        slopes = torch.autograd.grad(value, list(net.parameters()))
        rows.append(torch.cat([s.flatten() for s in slopes]))
    G_ND = torch.stack(rows)
    return G_ND.T @ G_ND / len(G_ND)


def dense_blocks(net, loss, inputs, targets, K):
    """Return J'BJ of torch's own mean over all samples, in the blocks of factors."""
    weights = {name: p.detach() for name, p in net.named_parameters()}
    found = net(inputs).detach()
    by_name = jacrev(lambda w: functional_call(net, w, (inputs,)))(weights)
    J = torch.cat([J.reshape(found.numel(), -1) for J in by_name.values()], 1)
    B = hessian(lambda f: loss(f, targets))(found).reshape(len(J), len(J))
    G, kept = J.T @ B @ J, torch.zeros(J.shape[1], J.shape[1]).double()
    for block in K.blocks.blocks:
        rows, columns = block.columns[:, None], block.columns
        kept[rows, columns] = G[rows, columns]
    return kept


@pytest.mark.parametrize("seed", range(6))
def test_weights_of_classes_can_be_taken_by_the_loss_of_each_sample(seed):
    generator = torch.Generator().manual_seed(seed)
    net, inputs, _ = made("mse", samples=12)
    labels = torch.randint(3, (12,), generator=generator)
    labels = labels.sort().values if seed % 2 else labels
    weight = torch.rand(3, generator=generator).double() * 4 + 0.1
    mean = weight[labels].mean()

    def of_each(f, y):
        return F.cross_entropy(f, y, weight=weight, reduction="none") / mean

    K = curvflow.kronecker(
        net, of_each, batches_of(inputs, labels, generator), structure="block"
    )
    whole = nn.CrossEntropyLoss(weight=weight)
    expected = dense_blocks(net, whole, inputs, labels, K)
    torch.testing.assert_close(K @ torch.eye(29).double(), expected)


SHAPES = {
    "one": ([nn.Linear(4, 3), nn.Tanh(), nn.Linear(3, 1), nn.Flatten(0)], ()),
    "tokens": ([nn.Linear(4, 3), nn.Tanh(), nn.Linear(3, 2)], (5,)),
}
VALUES = {
    "mse": F.mse_loss,
    "sse": lambda f, y: (f - y).square().sum() / len(f),
    "bce": F.binary_cross_entropy_with_logits,
    "poisson": lambda f, y: (f.exp() - y * f).mean(),
    "module": F.mse_loss,
}


@pytest.mark.parametrize("name", VALUES)
@pytest.mark.parametrize("shape", SHAPES)
def test_values_of_any_shape_are_the_outputs_of_a_sample(shape, name):
    layers, positions = SHAPES[shape]
    net = nn.Sequential(*layers).double()
    inputs = torch.randn(7, *positions, 4).double()
    targets = torch.rand(net(inputs).shape).double()
    loss = nn.MSELoss() if name == "module" else name
    given = net, loss, (inputs, targets)
    size = sum(p.numel() for p in net.parameters())
    K = curvflow.kronecker(*given, structure="block")
    expected = dense_blocks(net, VALUES[name], inputs, targets, K)
    torch.testing.assert_close(K @ torch.eye(size).double(), expected)
    own = curvflow.kronecker(*given, structure="diag", fisher_type="empirical")
    empirical = curvflow.fisher(*given, kind="empirical") @ torch.eye(size).double()
    ones = torch.ones(size).double()
    torch.testing.assert_close(own @ ones, empirical.diagonal())
    curvflow.kronecker(*given, fisher_type="mc")


def test_shapes_of_an_unknown_loss_are_refused_with_what_does():
    net = nn.Sequential(*SHAPES["tokens"][0]).double()
    inputs = torch.randn(7, 5, 4).double()
    targets = torch.randn(7, 5, 2).double()
    with pytest.raises(InputError, match=r"^module: .*Put torch.nn.Flatten\(\) behind"):
        curvflow.kronecker(net, nn.HuberLoss(), (inputs, targets), psd="clip")

    def shaped(f, y):
        return F.huber_loss(f.reshape(y.shape), y)

    flat = nn.Sequential(*net, nn.Flatten())
    K = curvflow.kronecker(flat, shaped, (inputs, targets), structure="block")
    expected = dense_blocks(flat, shaped, inputs, targets, K)
    torch.testing.assert_close(K @ torch.eye(23).double(), expected)


def mse(f, y):
    """Return another loss than its name says."""
    return (f - y).square().square().mean()


def test_the_name_of_a_function_is_that_of_no_law():
    net, inputs, targets = made("mse")
    K = curvflow.kronecker(net, mse, (inputs, targets), structure="block")
    expected = dense_blocks(net, mse, inputs, targets, K)
    torch.testing.assert_close(K @ torch.eye(29).double(), expected)


@pytest.mark.parametrize("last", [False, True], ids=["first batch", "last batch"])
def test_samples_whose_label_does_not_count_are_refused_by_name(last):
    net, inputs, labels = made("cross_entropy")
    labels = labels.clone()
    labels[-1 if last else 0] = -100
    for data in (
        (inputs, labels),
        [(inputs[:3], labels[:3]), (inputs[3:], labels[3:])],
    ):
        for loss in (nn.CrossEntropyLoss(), nn.CrossEntropyLoss(label_smoothing=0.1)):
            with pytest.raises(InputError, match=r"^data: .* Leave such samples out"):
                curvflow.kronecker(net, loss, data)
            with pytest.raises(InputError, match=r"^data: .* Leave such samples out"):
                curvflow.fisher(net, loss, data, kind="empirical")


IN_PLACE = {
    "relu": lambda h: F.relu(h, inplace=True),
    "celu_": torch.celu_,
    "scaled": lambda h: h.mul_(torch.linspace(0, 1, h.shape[1]).to(h)),
    "added": lambda h: h.add_(1).neg_().sigmoid_(),
    "entry": lambda h: _with_first(h, 2 * h[:, 1]),
    "view": lambda h: h.flatten().tanh_().view_as(h),
}


def _with_first(h, first):
    h[:, 0] = first
    return h


class Overwriting(nn.Module):
    """Layers whose outputs are overwritten, or copies of them."""

    def __init__(self, name, *, copies):
        super().__init__()
        self.first, self.norm = nn.Linear(3, 3), nn.LayerNorm(3)
        self.last, self.name, self.copies = nn.Linear(3, 3), name, copies

    def act(self, h):
        return IN_PLACE[self.name](h.clone() if self.copies else h)

    def forward(self, x):
        return self.last(self.act(self.norm(self.act(self.first(x)))))


def make_overwriting(name, copies):
    return Overwriting(name, copies=copies)


FACTORS = [
    {"structure": structure} for structure in ("block", "kron", "ekfac", "kfoc", "diag")
]


@pytest.mark.parametrize("name", IN_PLACE)
@pytest.mark.parametrize("seed", range(2))
def test_factors_of_layers_whose_outputs_are_overwritten_are_those_of_copies(
    name, seed
):
    torch.manual_seed(seed)
    net, twin = (Overwriting(name, copies=c).double() for c in (False, True))
    twin.load_state_dict(net.state_dict())
    given = nn.CrossEntropyLoss(), (torch.randn(8, 3).double(), torch.arange(8) % 3)
    eye = torch.eye(30).double()
    for settings in FACTORS:
        found = curvflow.kronecker(net, *given, **settings) @ eye
        expected = curvflow.kronecker(twin, *given, **settings) @ eye
        torch.testing.assert_close(found, expected, rtol=1e-9, atol=1e-12)
    G = curvflow.ggn(net, *given) @ eye
    K = curvflow.kronecker(net, *given, structure="block") @ eye
    for rows in (slice(0, 12), slice(12, 15), slice(15, 18), slice(18, 30)):
        torch.testing.assert_close(K[rows, rows], G[rows, rows])


@pytest.mark.parametrize("name", IN_PLACE)
def test_rules_take_factors_of_layers_whose_outputs_are_overwritten(name):
    factory = "tests.tasks.probes.kronecker.test_library:make_overwriting"
    weights = []
    for copies in (False, True):
        model = {"factory": factory, "kwargs": {"name": name, "copies": copies}}
        members = [
            train_member(blobs(), model=model, rule={"rule": "kfac"}, seed=s)
            for s in (0, 1)
        ]
        weights.append([fit.arrays["weights"] for fit in train_all(members)])
    np.testing.assert_allclose(*weights, rtol=1e-6, atol=1e-9)


class Unreached(nn.Module):
    """Has layers that its outputs do not depend on, or not with gradients."""

    def __init__(self, how):
        super().__init__()
        self.how, self.one, self.other = how, nn.Linear(4, 3), nn.Linear(4, 3)

    def forward(self, x):
        with torch.set_grad_enabled(self.how != "no gradients"):
            outputs = self.one(x)
        if self.how == "constant":
            outputs = torch.zeros_like(outputs)
        return outputs if self.how != "some" else outputs.detach() + self.other(x)


@pytest.mark.parametrize("settings", FACTORS, ids=lambda given: given["structure"])
@pytest.mark.parametrize("how", ["no gradients", "constant", "some"])
def test_layers_that_outputs_do_not_reach_have_no_factors(how, settings):
    torch.manual_seed(1)
    net = Unreached(how).double()
    given = nn.CrossEntropyLoss(), (torch.randn(8, 4).double(), torch.arange(8) % 3)
    K = curvflow.kronecker(net, *given, **settings) @ torch.eye(30).double()
    assert not K[:15].any()
    assert K[15:, 15:].any() == (how == "some")


@pytest.mark.parametrize("settings", FACTORS, ids=lambda given: given["structure"])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_factors_in_half_precision_are_those_in_double_precision(dtype, settings):
    net, inputs, targets = made("cross_entropy")
    half = net.to(dtype), LOSSES["cross_entropy"], (inputs.to(dtype), targets)
    K = curvflow.kronecker(*half, **settings)
    net.double()
    double = curvflow.kronecker(
        net, LOSSES["cross_entropy"], (inputs, targets), **settings
    )
    eye = torch.eye(29)
    for found, expected in (
        (K @ eye.to(dtype), double @ eye.double()),
        (K.solve(eye.to(dtype), 1.0), double.solve(eye.double(), 1.0)),
    ):
        assert (found.double() - expected).norm() < 0.05 * expected.norm()


def test_batches_that_do_not_fit_into_one_are_refused():
    torch.manual_seed(0)
    net = nn.Sequential(nn.AdaptiveAvgPool1d(2), nn.Linear(2, 3)).double()
    sizes = (3, 4), (2, 5)
    data = [(torch.randn(*s).double(), torch.arange(s[0])) for s in sizes]
    with pytest.raises(InputError, match=r"one shape in all batches, got \(4,\), \(5,"):
        curvflow.kronecker(net, nn.CrossEntropyLoss(), data)
    none = torch.zeros(0, 4).double(), torch.zeros(0, dtype=torch.long)
    with pytest.raises(InputError, match="expected samples, got none"):
        curvflow.kronecker(net, nn.CrossEntropyLoss(), none)


class Meeting(nn.Module):
    """Takes a share of what a batch has in common away from each sample."""

    def __init__(self, how, share):
        super().__init__()
        self.first, self.last = nn.Linear(4, 5), nn.Linear(5, 3)
        self.how, self.share = how, share

    def forward(self, x):
        h = self.first(x)
        if self.how == "mean":
            h = h - self.share * h.mean(0)
        elif self.how == "others":
            h = h + self.share * h.roll(1, 0)
        elif self.how == "place":
            h = h * (1 + self.share * torch.arange(len(h))[:, None]).to(h)
        elif self.how == "last":
            h = torch.cat([h[:-1], h[-1:] + self.share * h[:1]])
        return self.last(h.tanh())


class Cast(nn.Module):
    """Computes in one precision alone, of which no copy can be made."""

    def __init__(self, dtype):
        super().__init__()
        self.dtype, self.last = dtype, nn.Linear(3, 3, dtype=dtype)

    def __deepcopy__(self, _):
        raise TypeError("no copies")

    def forward(self, x):
        return self.last(x.to(self.dtype))


DTYPES = [torch.float64, torch.float32, torch.bfloat16, torch.float16]


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("how", ["mean", "others", "place", "last"])
@pytest.mark.parametrize("share", [1.0, 0.08, 1e-3])
def test_modules_in_which_samples_meet_are_refused(how, share, dtype):
    torch.manual_seed(0)
    x, y, loss = torch.randn(8, 4).to(dtype), torch.arange(8) % 3, nn.CrossEntropyLoss()
    with pytest.raises(InputError, match="samples that do not meet"):
        curvflow.kronecker(Meeting(how, share).to(dtype), loss, (x, y))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("seed", range(2))
def test_modules_in_which_they_do_not_are_taken_in_every_precision(seed, dtype):
    torch.manual_seed(seed)
    net, loss = Meeting("none", 0.0).to(dtype), nn.CrossEntropyLoss()
    x, y = torch.randn(20, 4).to(dtype), torch.arange(20) % 3
    before = [p.clone() for p in net.parameters()]
    for samples in (*range(1, 8), 20):
        curvflow.kronecker(net, loss, (x[:samples], y[:samples]))
    assert all(map(torch.equal, before, net.parameters()))
    if dtype.itemsize == 2:
        net = nn.Sequential(net, Cast(dtype))
        curvflow.kronecker(net, loss, (x, y))


@pytest.mark.parametrize(
    ("settings", "name"),
    [
        ({"mc_samples": 3}, "mc_samples"),
        ({"fisher_type": "mc", "distribution": "gaussian"}, "distribution"),
        ({"structure": "diag", "kfac_approx": "reduce"}, "kfac_approx"),
    ],
)
def test_settings_without_effect_are_refused_as_in_a_study(settings, name):
    net, inputs, targets = made("mse")
    with pytest.raises(
        InputError, match=f"^{name} .* cannot be combined with .* Remove"
    ):
        curvflow.kronecker(net, "mse", (inputs, targets), **settings)


class Attend(nn.Module):
    """Attention of one's own, by tokens or by samples first, with one readout."""

    def __init__(self, first, readout):
        super().__init__()
        self.first, self.readout = first, readout
        self.q, self.k, self.v, self.out = (nn.Linear(4, 4) for _ in range(4))
        self.head = nn.Linear(4, 3)

    def forward(self, x):
        x = x.transpose(0, 1) if self.first else x
        q, k, v = self.q(x), self.k(x), self.v(x)
        if self.first:
            shares = torch.einsum("lne,mne->nlm", q, k).softmax(-1)
            out = self.out(torch.einsum("nlm,mne->lne", shares, v)).tanh()
            out = out.transpose(0, 1)
        else:
            out = self.out((q @ k.mT).softmax(-1) @ v).tanh()
        given = {"mean": out.mean(1), "first": out[:, 0], "last": out[:, -1]}
        return self.head(given[self.readout])


@pytest.mark.parametrize("structure", ["kron", "ekfac", "block"])
@pytest.mark.parametrize("readout", ["mean", "first", "last"])
def test_tokens_may_come_first_in_a_module_of_ones_own(readout, structure):
    torch.manual_seed(0)
    nets = [Attend(first, readout).double() for first in (False, True)]
    nets[1].load_state_dict(nets[0].state_dict())
    data = torch.randn(6, 3, 4).double(), torch.randint(3, (6,))
    size = sum(p.numel() for p in nets[0].parameters())
    expected, own = (
        curvflow.kronecker(net, "cross_entropy", data, structure=structure)
        for net in nets
    )
    assert [each.name for each in own.blocks.blocks] == [
        each.name for each in expected.blocks.blocks
    ]
    eye = torch.eye(size).double()
    torch.testing.assert_close(own @ eye, expected @ eye)


class Mixing(nn.Module):
    """Rows in an order that is neither by samples nor by tokens."""

    def __init__(self):
        super().__init__()
        self.inner, self.head = nn.Linear(4, 4), nn.Linear(4, 3)

    def forward(self, x):
        windows = x.view(len(x), 2, 3, 4).transpose(0, 1)
        rows = self.inner(windows.reshape(-1, 4)).view(windows.shape)
        return self.head(rows.transpose(0, 1).flatten(1, 2).tanh().mean(1))


def test_rows_in_another_order_are_of_no_layer():
    torch.manual_seed(0)
    net = Mixing().double()
    data = torch.randn(5, 6, 4).double(), torch.randint(3, (5,))
    K = curvflow.kronecker(net, "cross_entropy", data, structure="kron")
    names = {each.name: type(each).__name__ for each in K.blocks.blocks}
    assert names["inner.weight and inner.bias"] == "Eigenpairs"
    assert names["head.weight and head.bias"] == "Product"
    exact = curvflow.kronecker(net, "cross_entropy", data, structure="block")
    first = slice(0, 20)
    eye = torch.eye(35).double()
    torch.testing.assert_close((K @ eye)[first, first], (exact @ eye)[first, first])
    expected = dense_blocks(net, F.cross_entropy, *data, exact)
    torch.testing.assert_close(exact @ eye, expected)


class Linears(nn.Module):
    """Dense layers on tokens that come first, of which the mean is taken."""

    def __init__(self):
        super().__init__()
        self.first, self.second, self.head = (nn.Linear(3, 3) for _ in range(3))

    def forward(self, x):
        return self.head(self.second(self.first(x.transpose(0, 1))).mean(0))


def test_a_recursion_passes_no_mean_through_tokens_that_come_first():
    torch.manual_seed(0)
    net, data = Linears().double(), (torch.randn(5, 4, 3).double(), torch.ones(5, 3))
    both = [
        curvflow.kronecker(net, "mse", data, fisher_type=kind)
        for kind in ("recursive", "type-2")
    ]
    assert all(type(each).__name__ == "Product" for each in both[0].blocks.blocks)
    vectors = torch.eye(36).double()
    torch.testing.assert_close(both[0] @ vectors, both[1] @ vectors)


class Positions(nn.Module):
    """A layer on what all samples have in common, such as positions."""

    def __init__(self, kind):
        super().__init__()
        self.kind, self.head = kind, nn.Linear(3, 3)
        shape = (1, 1, 5, 5) if kind == "images" else (5, 4)
        self.fixed = nn.Parameter(torch.randn(shape))
        made = {
            "images": lambda: nn.Conv2d(1, 3, 5),
            "rows": lambda: nn.Linear(4, 3),
            "table": lambda: nn.Embedding(5, 3),
            "norm": lambda: nn.LayerNorm(4),
        }
        self.inner = made[kind]()

    def forward(self, x):
        tokens = torch.arange(5)
        found = self.inner(tokens if self.kind == "table" else self.fixed)
        found = found.flatten(1)[..., :3].reshape(1, -1, 3)
        return self.head((x.unsqueeze(1) * found).tanh().sum(1))


@pytest.mark.parametrize("kind", ["images", "rows", "table", "norm"])
def test_layers_on_what_all_samples_share_have_exact_blocks(kind):
    torch.manual_seed(0)
    net = Positions(kind).double()
    data = torch.randn(6, 3).double(), torch.randint(3, (6,))
    K = curvflow.kronecker(net, "cross_entropy", data, structure="block")
    expected = dense_blocks(net, F.cross_entropy, *data, K)
    torch.testing.assert_close(K @ torch.eye(len(expected)).double(), expected)
    kron = curvflow.kronecker(net, "cross_entropy", data)
    kinds = {each.name: type(each).__name__ for each in kron.blocks.blocks}
    assert kinds.pop("head.weight and head.bias") == "Product"
    assert set(kinds.values()) == {"Eigenpairs"}
