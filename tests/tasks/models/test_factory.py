"""Modules of the user's own."""

import json
import warnings
from pathlib import Path

import numpy as np
import pytest
import torch
from torch.nn.attention import SDPBackend, sdpa_kernel

import curvflow
from curvflow.errors import InputError
from curvflow.schemas.kinds.shared.datasets import dataset
from curvflow.schemas.models import parse_model
from curvflow.tasks.networks.problems import pose, read
from tests.tasks import toys
from tests.tasks.toys import (
    as_data,
    assert_declared,
    blobs,
    compute,
    dense_of,
    member,
    train_all,
    train_member,
    weights_of,
)


def factory(name, **kwargs):
    return {"factory": f"tests.tasks.toys:{name}", "kwargs": kwargs}


def images():
    rng = np.random.default_rng(0)
    return as_data(dataset(rng.normal(size=(12, 1, 4, 4)), np.arange(12) % 3))


def test_a_convolutional_network_trains_as_by_hand():
    data = images()
    members = [
        train_member(data, model=factory("make_conv"), seed=seed, epochs=4)
        for seed in range(2)
    ]
    outcomes = train_all([_with_start(m) for m in members])
    assert_declared("train", outcomes[0])
    for outcome in outcomes:
        twin = toys.make_conv().double()
        first = torch.as_tensor(outcome.arrays["weights"][0])
        torch.nn.utils.vector_to_parameters(first, twin.parameters())
        steps = torch.optim.SGD(twin.parameters(), lr=0.1, momentum=0.9)
        for _ in range(4):
            steps.zero_grad()
            x = torch.as_tensor(data["inputs"])
            y = torch.as_tensor(data["targets"]).long()
            torch.nn.functional.cross_entropy(twin(x), y).backward()
            steps.step()
        actual = torch.nn.utils.parameters_to_vector(twin.parameters()).detach()
        np.testing.assert_allclose(outcome.arrays["weights"][-1], actual, rtol=1e-10)


def _with_start(node):
    settings = node.params.model_dump(mode="json") | {"checkpoints": {"every": 4}}
    return member("train", settings, data=node.one("data"))


def test_the_modules_own_initialisation_follows_the_seed_alone():
    def first(seed):
        weights_node = train_member(images(), model=factory("make_conv"), seed=seed)
        return train_all([_with_start(weights_node)] * 2)[0].arrays["weights"][0]

    before = torch.random.get_rng_state()
    assert np.array_equal(first(1), first(1))
    assert not np.array_equal(first(1), first(2))
    assert torch.equal(before, torch.random.get_rng_state())


def test_probes_take_it_like_any_other():
    data = images()
    fits = train_all(
        [train_member(data, model=factory("make_conv"), seed=s) for s in (0, 1)]
    )
    probes = [
        member("probe.eigenvalues", {"k": 2}, weights=weights_of(f), data=data)
        for f in fits
    ]
    for probe, outcome in zip(
        probes, compute("probe.eigenvalues", probes), strict=True
    ):
        exact = np.linalg.eigvalsh(dense_of(probe).numpy())
        exact = exact[np.abs(exact).argsort()[::-1]][:2]
        assert outcome.arrays["converged"].all()
        np.testing.assert_allclose(outcome.arrays["eigenvalues"], exact, rtol=1e-6)


def test_a_frozen_batch_norm_keeps_its_buffers():
    fits = train_all([train_member(blobs(), model=factory("make_scaled_norm"))] * 2)
    assert fits[0].status == "ok"
    network = pose(parse_model(factory("make_scaled_norm")), "auto", blobs()).network
    assert network.statistics.names == ("1.running_mean", "1.running_var")
    _, statistics = network.split(torch.as_tensor(fits[0].arrays["weights"][-1]))
    torch.testing.assert_close(statistics, network.first_statistics())


@pytest.mark.parametrize("rule", ["ngd", "swa"])
def test_rules_that_refuse_or_average_moving_statistics_take_fixed_ones(rule):
    more = {"start": 1} if rule == "swa" else {"alpha": 0.1}
    settings = {"rule": rule, "lr": 1e-4, **more}
    fit = train_all(
        [train_member(blobs(), model=factory("make_scaled_norm"), rule=settings)]
    )[0]
    assert fit.status == "ok"
    network = pose(parse_model(factory("make_scaled_norm")), "auto", blobs()).network
    _, statistics = network.split(torch.as_tensor(fit.arrays["weights"][-1]))
    torch.testing.assert_close(statistics, network.first_statistics())


def test_weights_stored_without_buffers_have_the_modules_own():
    problem = pose(parse_model(factory("make_scaled_norm")), "auto", blobs())
    plain = json.loads(problem.text)
    del plain["statistics"]
    text = json.dumps(plain, sort_keys=True, separators=(",", ":"))
    before, x = read(text), torch.randn(1, 5, 3, dtype=torch.float64)
    first_W = problem.network.first_statistics()
    weights_D = torch.randn(problem.network.num_parameters, dtype=torch.float64)
    weights_W = torch.cat([weights_D, first_W])
    assert before.network.statistics.size == 0
    torch.testing.assert_close(
        before.network.outputs(weights_D[None], x),
        problem.network.outputs(weights_W[None], x),
    )


@pytest.mark.parametrize(
    ("name", "kwargs", "message"),
    [
        (
            "make_batch_norm",
            {"track_running_stats": False},
            "got BatchNorm1d at '1' without running statistics. Leave track_running",
        ),
        ("make_pair", {}, "to return a torch.nn.Module with parameters, got tuple"),
        ("make_conv", {"width": 3}, "to take the keyword arguments width, got TypeErr"),
        ("make_frozen", {"last": True}, "parameters to train, got frozen ones alone"),
        ("make_mixing", {}, "batch of one"),
        ("make_noisy", {}, "second call. Remove internal state, and draw in training"),
        ("make_stacked_lstm", {}, "in training for equal inputs and draws"),
        ("make_counter", {}, "got 'calls' of torch.int64. Register it as real numbers"),
        ("make_counting", {}, "second call"),
        ("make_two", {}, "returns a tensor, got tests.tasks.toys:make_two with tuple"),
        ("make_misfit", {}, "got tests.tasks.toys:make_misfit with RuntimeError: "),
    ],
)
def test_what_cannot_be_trained_in_a_batch_is_refused_by_name(name, kwargs, message):
    with pytest.raises(InputError, match=message):
        train_all([train_member(blobs(), model=factory(name, **kwargs))])


@pytest.mark.parametrize(
    ("name", "line", "says"),
    [
        ("make_broken", "return 1 / self.nothing", "AttributeError: 'Broken' object"),
        ("make_wrong", "return nn.Linear(3, -2)", "RuntimeError: "),
        ("make_untyped", "return linear(3) + 1", "TypeError: "),
    ],
)
def test_a_failure_in_the_users_code_begins_with_his_file_and_line(name, line, says):
    lines = Path(toys.__file__).read_text(encoding="utf-8").splitlines()
    (number,) = [n for n, text in enumerate(lines, start=1) if text.strip() == line]
    with pytest.raises(InputError) as caught:
        train_all([train_member(blobs(), model=factory(name))])
    assert str(caught.value).startswith(f"model: toys.py:{number}: expected ")
    assert says in str(caught.value)
    assert f"tests.tasks.toys:{name}" in str(caught.value)


def probed(name, kind, **params):
    fits = train_all(
        [train_member(blobs(), model=factory(name), seed=s) for s in (0, 1)]
    )
    probes = [member(kind, params, weights=weights_of(f), data=blobs()) for f in fits]
    return probes, compute(kind, probes)


def test_attention_has_second_derivatives():
    probes, actual = probed("make_attention", "probe.eigenvalues", k=1)
    for probe, outcome in zip(probes, actual, strict=True):
        with sdpa_kernel(SDPBackend.MATH):
            exact = np.abs(np.linalg.eigvalsh(dense_of(probe).numpy())).max()
        assert abs(outcome.arrays["eigenvalues"][0]) == pytest.approx(exact, rel=1e-6)


def test_buffers_keep_their_precision():
    problem = pose(parse_model(factory("make_scaled")), "auto", blobs())
    buffer_S = problem.network.first_statistics()
    ones_MD = torch.ones(2, 12, dtype=torch.float64)
    weights = torch.cat([ones_MD, buffer_S.expand(2, -1)], dim=1)
    outputs = problem.network.outputs(weights, torch.ones(1, 1, 3).double())
    torch.testing.assert_close(
        outputs[0, 0], torch.full((3,), 4 / 3, dtype=torch.float64), rtol=1e-14, atol=0
    )


def test_the_trial_leaves_the_users_random_numbers_alone():
    before = torch.random.get_rng_state()
    pose(parse_model(factory("make_conv", channels=3)), "auto", images())
    assert torch.equal(before, torch.random.get_rng_state())


def test_outputs_of_another_shape_are_refused():
    four = as_data(dataset(images()["inputs"], np.arange(12) % 4))
    with pytest.raises(InputError, match=r"expected outputs of shape \(4, 4\)"):
        train_all([train_member(four, model=factory("make_conv"))])


def test_a_function_that_changed_since_training_is_refused():
    fit = train_all([train_member(images(), model=factory("make_conv"))] * 2)[0]
    text = str(fit.arrays["network"]).replace("[2,1,3,3]", "[5,1,3,3]")
    with pytest.raises(InputError, match="expected the parameters it was trained with"):
        read(text)


class Linear(torch.nn.Linear):
    """Three outputs of three inputs."""

    def __init__(self):
        super().__init__(3, 3)


class Running(Linear):
    """It subtracts a mean of earlier inputs, in a buffer that may not be kept."""

    def __init__(self, persistent, rate=0.5):
        super().__init__()
        self.rate = rate
        self.register_buffer("mean", torch.zeros(3), persistent=persistent)

    def forward(self, x):
        if self.training:
            means = x.detach().mean(0)
            self.mean.copy_((1 - self.rate) * self.mean + self.rate * means)
        return super().forward(x - self.mean)


class Turned(Linear):
    """It has a table that each call fills anew, and notes inputs that it reads not."""

    def __init__(self, persistent):
        super().__init__()
        self.register_buffer("table", torch.zeros(3), persistent=persistent)
        self.register_buffer("seen", torch.zeros(3), persistent=persistent)

    def forward(self, x):
        self.table.copy_(torch.arange(3.0))
        self.seen.copy_(x[0].detach())
        return super().forward(x * self.table.cos())


class Single(Linear):
    """It computes in single precision, whatever its weights are."""

    def forward(self, x):
        return super().forward(x.float())


class TrainedPair(Linear):
    """It returns more in training."""

    def forward(self, x):
        outputs = super().forward(x)
        return (outputs, x) if self.training else outputs


class Causal(Linear):
    """It takes the samples of a batch for times, as a recurrent layer by default."""

    def forward(self, x):
        return super().forward(x.cumsum(0))


def make_lazy():
    return torch.nn.LazyLinear(3)


def make_scripted():
    with pytest.warns(DeprecationWarning, match="torch.jit.script"):
        return torch.jit.script(torch.nn.Linear(3, 3))


def make_complex():
    module = Linear()
    module.phase = torch.nn.Parameter(torch.ones(2, dtype=torch.complex64))
    return module


def make_hollow():
    module = Linear()
    module.rest = torch.nn.Parameter(torch.zeros(0, 4))
    return module


def make_masked(post=False):
    module = Linear()
    if post:
        module.weight.register_post_accumulate_grad_hook(lambda p: None)
    else:
        module.weight.register_hook(lambda gradient: gradient.tril())
    return module


def make_tokens(**kwargs):
    layers = torch.nn.Embedding(5, 3, **kwargs), torch.nn.Flatten(), torch.nn.Tanh()
    return torch.nn.Sequential(*layers, torch.nn.Linear(6, 3))


def make_attending():
    return Attending()


class Attending(torch.nn.Module):
    """Attention to tokens that are not 0, of which a trial has none."""

    def __init__(self):
        super().__init__()
        self.tokens = torch.nn.Embedding(5, 4)
        self.mix = torch.nn.MultiheadAttention(4, 2, batch_first=True)
        self.head = torch.nn.Linear(4, 3)

    def forward(self, ids):
        rows = self.tokens(ids)
        mixed, _ = self.mix(rows, rows, rows, key_padding_mask=ids == 0)
        return self.head(mixed.mean(1))


def here(name, **kwargs):
    return {"factory": f"{__name__}:{name}", "kwargs": kwargs}


@pytest.mark.parametrize(
    ("name", "kwargs", "message"),
    [
        ("Running", {"persistent": False}, r"'mean', which is not\. Register it with"),
        ("Running", {"persistent": False, "rate": 1.0}, "got 'mean', which is not"),
        ("Single", {}, r"test_factory\.py:\d+: expected a module that computes in the"),
        ("TrainedPair", {}, r"in training with tuple\. Wrap it"),
        ("Causal", {}, "depend on their own sample alone"),
        ("make_lazy", {}, r"shapes are known, got 'weight' of .* Call the module on"),
        ("make_scripted", {}, r"in Python, got RecursiveScriptModule\. Return what"),
        ("make_hollow", {}, r"got 'rest' of shape \(0, 4\)\. Remove it"),
        ("make_complex", {}, r"got 'phase' of torch\.complex64\. Hold the real"),
        ("make_masked", {}, "got a hook on that of 'weight', which would not be"),
        ("make_masked", {"post": True}, "got a hook on that of 'weight'"),
    ],
)
def test_what_would_not_be_trained_as_in_a_loop_is_refused(name, kwargs, message):
    with pytest.raises(InputError, match=message) as caught:
        train_all([train_member(blobs(), model=here(name, **kwargs))] * 2)
    assert "\n" not in str(caught.value)


def test_a_buffer_without_memory_need_not_be_kept():
    fits = train_all(
        [
            train_member(blobs(), model=here("Turned", persistent=persistent))
            for persistent in (False, True)
        ]
    )
    plain, kept = (fit.arrays["weights"][-1] for fit in fits)
    np.testing.assert_allclose(plain, kept[: len(plain)], rtol=1e-12)


def sentences():
    rng = np.random.default_rng(1)
    return as_data(dataset(rng.integers(0, 5, (12, 2)), np.arange(12) % 3))


def test_gradients_by_rows_are_as_others():
    fits = [
        train_all([train_member(sentences(), model=here("make_tokens", sparse=sparse))])
        for sparse in (False, True)
    ]
    plain, sparse = (fit.arrays["weights"][-1] for (fit,) in fits)
    assert np.array_equal(plain, sparse)
    scaled = train_member(
        sentences(), model=here("make_tokens", scale_grad_by_freq=True)
    )
    with pytest.raises(InputError, match=r"Embedding at '0' with scale_grad_by_freq"):
        train_all([scaled])


def test_masks_that_hide_all_of_a_trial_hide_no_module():
    data = sentences()
    data["inputs"][:, 0] = 1
    (fit,) = train_all([train_member(data, model=here("make_attending"))])
    assert np.isfinite(fit.arrays["weights"]).all()


class WrittenOut(torch.nn.Linear):
    """A linear layer whose rows are directions at lengths, by products alone."""

    def __init__(self, dim):
        super().__init__(3, 3)
        self.dim = dim
        weight = self.weight.detach()
        del self.weight
        rest = [0, 1] if dim is None else [1 - dim]
        self.weight_g = torch.nn.Parameter(weight.square().sum(rest, True).sqrt())
        if dim is None:
            self.weight_g = torch.nn.Parameter(weight.norm())
        self.weight_v = torch.nn.Parameter(weight)

    def forward(self, x):
        rest = [0, 1] if self.dim is None else [1 - self.dim]
        lengths = self.weight_v.square().sum(rest, keepdim=True).sqrt()
        weight = self.weight_v * (self.weight_g / lengths)
        return torch.nn.functional.linear(x, weight, self.bias).tanh()


def make_hooked(dim=0):
    torch.manual_seed(4)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)
        layer = torch.nn.utils.weight_norm(Linear(), dim=dim)
    return torch.nn.Sequential(layer, torch.nn.Tanh())


def make_written_out(dim=0):
    torch.manual_seed(4)
    return WrittenOut(dim)


@pytest.mark.parametrize("order", ["forward_over_reverse", "reverse_over_reverse"])
@pytest.mark.parametrize("dim", [0, 1, None])
def test_a_weight_norm_of_the_old_form_has_the_products_of_one_written_out(dim, order):
    data = torch.randn(7, 3).double(), torch.arange(7) % 3
    spectra, loss = [], torch.nn.CrossEntropyLoss()
    for make in (make_hooked, make_written_out):
        module = make(dim).double()
        operator = curvflow.hessian(module, loss, data, order=order)
        matrix = operator @ torch.eye(operator.shape[0]).double()
        torch.testing.assert_close(matrix, matrix.T)
        spectra.append(torch.linalg.eigvalsh(matrix))
        hooks = [h for m in module.modules() for h in m._forward_pre_hooks.values()]
        assert not any("compute_weight" in vars(hook) for hook in hooks)
    torch.testing.assert_close(*spectra)


def test_a_study_takes_a_weight_norm_of_the_old_form():
    fits = [
        train_all([train_member(blobs(), model=here(name))] * 2)[0]
        for name in ("make_hooked", "make_written_out")
    ]
    top = [
        compute(
            "probe.eigenvalues",
            [member("probe.eigenvalues", {"k": 2}, weights=weights_of(f), data=blobs())]
            * 2,
        )[0].arrays["eigenvalues"]
        for f in fits
    ]
    np.testing.assert_allclose(*top, rtol=1e-6)


@pytest.mark.parametrize("order", ["forward_over_reverse", "reverse_over_reverse"])
def test_products_take_all_rows_of_an_embedding_with_sparse_gradients(order):
    ids, targets = torch.randint(0, 5, (9, 2)), torch.arange(9) % 3
    products, columns = [], torch.randn(36, 2).double()
    for sparse in (False, True):
        torch.manual_seed(3)
        module = make_tokens(sparse=sparse).double()
        loss = torch.nn.CrossEntropyLoss()
        operator = curvflow.hessian(module, loss, (ids, targets), order=order)
        products.append(operator @ columns)
        assert module[0].sparse == sparse
    torch.testing.assert_close(*products)
