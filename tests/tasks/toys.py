"""Small data sets, members and networks for the tests of tasks."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from torch import nn

from curvflow.schemas.kinds import find_kind
from curvflow.schemas.kinds.shared.datasets import dataset
from curvflow.schemas.nodes import Data, Member, NodeData, Outcome, Weights
from curvflow.tasks.curvature.network_operators import batched_operator, problem_of
from curvflow.tasks.networks.problems import read
from curvflow.tasks.numerics import dense_hessian
from curvflow.tasks.registry import Machine, find

CPU = Machine()
TANH_NET = {"kind": "mlp", "hidden": [6], "activation": "tanh"}
RELU_NET = {"kind": "mlp", "hidden": [5, 4], "activation": "relu"}
SGD = {"rule": "sgd", "lr": 0.1, "momentum": 0.9}
ADAM = {"rule": "adam", "lr": 0.01}


def member(kind: str, params: Mapping[str, Any] | None = None, **inputs: NodeData):
    checked = find_kind(kind).params.model_validate(params or {})
    return Member(checked, {name: [node] for name, node in inputs.items()})


def compute(kind: str, members) -> list[Outcome]:
    return find(kind).compute(members, CPU)


def as_data(arrays, digest="toy") -> Data:
    return Data("data", "data.array", {}, arrays, digest)


def matrix_of(probe):
    """Return the matrix that a probe's member multiplies with."""
    layout = problem_of(probe).network.layout
    operator = batched_operator(
        [probe] * 2,
        CPU,
        [probe.params] * 2,
        names=layout.names,
        columns=layout.size,
    )
    eye = torch.eye(layout.size, dtype=torch.float64)
    return (operator @ eye.expand(2, -1, -1))[0]


def xor(labels="sign") -> Data:
    (outcome,) = compute("data.xor", [member("data.xor", {"labels": labels})])
    return as_data(outcome.arrays, f"xor-{labels}")


def blobs(num_samples=30, num_test=8, seed=0, num_classes=3) -> Data:
    """Gaussian clouds in three dimensions, one per class."""
    rng = np.random.default_rng(seed)
    y = np.arange(num_samples + num_test) % num_classes
    x = rng.normal(size=(len(y), 3)) + y[:, None]
    return as_data(
        dataset(x[num_test:], y[num_test:], x[:num_test], y[:num_test]), f"blobs{seed}"
    )


def waves(num_samples=20, seed=0) -> Data:
    """A regression with two outputs and no test set."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(num_samples, 3))
    return as_data(dataset(x, np.sin(x[:, :2])), f"waves{seed}")


def train_member(data: Data, **params: Any) -> Member:
    settings = {
        "model": TANH_NET,
        "rule": SGD,
        "epochs": 5,
        "dtype": "float64",
        **params,
    }
    return member("train", settings, data=data)


def train_all(members) -> list[Outcome]:
    return compute("train", members)


def weights_of(outcome: Outcome, checkpoint=-1) -> Weights:
    taken = {
        "weights": outcome.arrays["weights"][checkpoint],
        "network": outcome.arrays["network"],
    }
    return Weights("fit", "train", {}, taken, "w", outcome.status, outcome.reason)


def dense_of(probe: Member) -> torch.Tensor:
    """Return the dense Hessian that a probe's member asks about."""
    weights, data = probe.one("weights"), probe.one("data")
    problem = read(str(weights["network"]))
    kind = torch.int64 if data["targets"].ndim == 1 else torch.float64
    return dense_hessian(
        problem.losses,
        torch.as_tensor(weights["weights"]),
        torch.as_tensor(data["inputs"]),
        torch.as_tensor(data["targets"], dtype=kind),
    )


def assert_declared(kind: str, outcome: Outcome) -> None:
    """Hold an outcome to its declaration: names, dtypes and numbers of dimensions."""
    outputs = [
        output
        for output in find_kind(kind).outputs
        if output.name in outcome.arrays or not output.optional
    ]
    assert set(outcome.arrays) == {v.name for v in outputs}
    sizes: dict[str, int] = {}
    for variable in outputs:
        array = outcome.arrays[variable.name]
        is_text = variable.dtype == "str"
        dtypes = (variable.dtype, variable.or_dtype or variable.dtype)
        assert array.dtype.kind == "U" if is_text else array.dtype in dtypes
        dims = [dim for dim in variable.dims if dim != "..."]
        assert array.ndim == len(dims) or "..." in variable.dims, variable.name
        for dim, size in zip(dims, array.shape, strict=False):
            assert sizes.setdefault(dim, size) == size, variable.name


def random_symmetric(size: int, seed: int) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    A_DD = torch.randn(size, size, generator=generator, dtype=torch.float64)
    return (A_DD + A_DD.T) / 2


def with_spectrum(values, seed: int) -> torch.Tensor:
    """A symmetric matrix with the eigenvalues given."""
    basis = torch.linalg.qr(random_symmetric(len(values), seed)).Q
    return basis @ torch.diag(torch.as_tensor(values, dtype=torch.float64)) @ basis.T


def make_conv(channels: int = 2) -> nn.Module:
    """A convolutional network for inputs of shape (1, 4, 4) and three classes."""
    return nn.Sequential(
        nn.Conv2d(1, channels, 3), nn.Tanh(), nn.Flatten(), nn.Linear(4 * channels, 3)
    )


class Tokens(nn.Module):
    """Two layers on three tokens, which may come first, and a readout of the last."""

    def __init__(self, first: bool) -> None:
        super().__init__()
        self.first = first
        self.inner, self.outer = nn.Linear(1, 4), nn.Linear(4, 4)
        self.head = nn.Linear(4, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        tokens = x.unsqueeze(2)
        tokens = self.inner(tokens.transpose(0, 1) if self.first else tokens)
        means = tokens.mean(0 if self.first else 1, keepdim=True)
        found = self.outer((tokens + means).tanh())
        return self.head(found[-1] if self.first else found[:, -1])


def make_tokens(first: bool) -> nn.Module:
    return Tokens(first)


def make_batch_norm(**options) -> nn.Module:
    norm = nn.BatchNorm1d(4, **options)
    return nn.Sequential(nn.Linear(3, 4), norm, nn.Tanh(), nn.Linear(4, 3))


class Residual(nn.Module):
    """A convolution with a norm, and a way around them."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Conv2d(1, 2, 3, padding=1)
        self.conv = nn.Conv2d(2, 2, 3, padding=1, bias=False)
        self.norm, self.head = nn.BatchNorm2d(2), nn.Linear(2, 3)

    def forward(self, x):
        x = self.stem(x)
        x = x + torch.relu(self.norm(self.conv(x)))
        return self.head(x.mean((2, 3)))


def make_resnet() -> nn.Module:
    return Residual()


def make_half_frozen_norm() -> nn.Module:
    """Two norms, of which one is in evaluation."""
    module = make_scaled_norm().train()
    module.append(nn.BatchNorm1d(3))
    module[1].eval()
    return module


def make_scaled_norm():
    """A norm whose statistics are far from those of a fresh one, and a mask."""
    made = make_frozen_norm()
    for layer in made:
        if isinstance(layer, nn.BatchNorm1d):
            draw = torch.Generator().manual_seed(4)
            layer.running_mean.normal_(generator=draw)
            layer.running_var.uniform_(0.01, 0.1, generator=draw)
    made.register_buffer("mask", torch.tensor([True]))
    made.register_buffer("scratch", torch.ones(2), persistent=False)
    return made


def make_frozen_norm() -> nn.Module:
    norm = nn.BatchNorm1d(4)
    return nn.Sequential(nn.Linear(3, 4), norm, nn.Linear(4, 3)).eval()


def make_dropout(rate: float = 0.5) -> nn.Module:
    return nn.Sequential(nn.Linear(3, 6), nn.Tanh(), nn.Dropout(rate), nn.Linear(6, 3))


def make_frozen(last: bool = False) -> nn.Module:
    module = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 3))
    module[0].requires_grad_(False)
    module[2].requires_grad_(not last)
    return module


class Features(nn.Module):
    """Features drawn with the weights, and a weight that is turned from one drawn."""

    features: torch.Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("features", torch.randn(3, 4))
        turned = nn.Linear(4, 4)
        self.turned = nn.utils.parametrizations.orthogonal(turned)
        self.head = nn.Linear(4, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        features = (x @ self.features).cos()
        return self.head(self.turned(features).tanh())


def make_features() -> nn.Module:
    return Features()


def make_frozen_first() -> nn.Module:
    """A frozen weight with a bias that is trained, and a frozen bias."""
    module = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 3))
    module[0].weight.requires_grad_(False)
    module[2].bias.requires_grad_(False)
    return module


class Tied(nn.Module):
    """One tensor under two names, the second of which is that of the head."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.head = nn.Linear(3, 3), nn.Linear(3, 3)
        self.head.weight = self.first.weight

    def forward(self, x):
        return self.head(torch.tanh(self.first(x)))


def make_tied() -> nn.Module:
    return Tied()


class Hooked(nn.Linear):
    """Doubles the gradient of its weight by a hook of each call."""

    def forward(self, x):
        if self.weight.requires_grad:
            self.weight.register_hook(lambda slope: 2 * slope)
        return super().forward(x)


def make_hooked() -> nn.Module:
    return Hooked(3, 3)


class Replacing(nn.Linear):
    """Puts other memory in the place of its weight in each call."""

    def forward(self, x):
        self.weight.data = self.weight.data.clamp(-0.5, 0.5)
        return super().forward(x)


def make_replacing() -> nn.Module:
    return Replacing(3, 3)


class Clamping(nn.Linear):
    """Limits its weight in place in each call."""

    def forward(self, x):
        self.weight.data.clamp_(-0.5, 0.5)
        return super().forward(x)


def make_clamping() -> nn.Module:
    return Clamping(3, 3)


class Marking(nn.Linear):
    """Divides its weight by a norm that it notes at the weight itself."""

    def forward(self, x):
        if not hasattr(self.weight, "length"):
            self.weight.length = self.weight.detach().norm()
        return nn.functional.linear(x, self.weight / self.weight.length, self.bias)


def make_marking() -> nn.Module:
    return Marking(3, 3)


class Backward(nn.Linear):
    """Multiplies its outputs by the gradient of their square."""

    def forward(self, x):
        outputs = super().forward(x)
        if not self.weight.is_leaf or not self.weight.requires_grad:
            return outputs
        outputs.square().mean().backward(retain_graph=True)
        return outputs * self.weight.grad.norm()


def make_backward() -> nn.Module:
    return Backward(3, 3)


class Noisy(nn.Module):
    """Draws in training, by functions of torch."""

    def __init__(self, moody: bool = False) -> None:
        super().__init__()
        self.first, self.out = nn.Linear(3, 4), nn.Linear(4, 3)
        self.moody = moody

    def forward(self, x):
        hidden = torch.tanh(self.first(x))
        if self.training:
            hidden = hidden + 0.3 * torch.randn_like(hidden)
            kept = torch.empty(len(x), 1, dtype=x.dtype, device=x.device)
            hidden = hidden * torch.bernoulli(kept.fill_(0.8))
        for _ in range(int(self.moody and self.training and hidden.sum() > 0)):
            hidden = nn.functional.dropout(hidden, 0.5)
        return self.out(hidden)


def make_random() -> nn.Module:
    return Noisy()


def make_moody() -> nn.Module:
    return Noisy(moody=True)


class Counter(nn.Linear):
    """Counts its calls in training in a whole number."""

    def __init__(self) -> None:
        super().__init__(3, 3)
        self.register_buffer("calls", torch.tensor(0))

    def forward(self, x):
        if self.training:
            self.calls += 1
        return super().forward(x)


def make_counter() -> nn.Module:
    return Counter()


class Ageing(nn.Linear):
    """Counts its calls in training in a real number."""

    def __init__(self) -> None:
        super().__init__(3, 3)
        self.register_buffer("age", torch.zeros(()))

    def forward(self, x):
        if self.training:
            self.age = self.age + 1  # a new tensor in the buffer's place
        return super().forward(x)


def make_ageing() -> nn.Module:
    return Ageing()


class StackedLSTM(nn.Module):
    """Two recurrent layers with a dropout that torch has within its kernel."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.LSTM(1, 4, 2, batch_first=True, dropout=0.5)
        self.out = nn.Linear(4, 3)

    def forward(self, x):
        return self.out(self.layers(x.unsqueeze(-1))[0][:, -1])


def make_embedding() -> nn.Module:
    """A layer of each token by itself."""
    return nn.Sequential(nn.Embedding(7, 4), nn.Tanh(), nn.Linear(4, 7))


def make_stacked_lstm() -> nn.Module:
    return StackedLSTM()


def make_transformer(rate: float = 0.0) -> nn.Module:
    """A transformer's layer over the features, which are its tokens."""
    layer = nn.TransformerEncoderLayer(4, 2, 8, dropout=rate, batch_first=True)
    return nn.Sequential(
        nn.Unflatten(1, (3, 1)), nn.Linear(1, 4), layer, nn.Flatten(), nn.Linear(12, 3)
    )


class Lambda(nn.Module):
    """A linear layer after a function of its inputs."""

    def __init__(self, function, features: int = 3) -> None:
        super().__init__()
        self.function = function
        self.linear = nn.Linear(features, 3)

    def forward(self, x):
        return self.linear(self.function(x))


def make_mixing() -> nn.Module:
    return Lambda(lambda x: x - x.mean(0))


def make_noisy() -> nn.Module:
    return Lambda(lambda x: nn.functional.dropout(x, 0.5))


def make_counting() -> nn.Module:
    """A module whose outputs grow from call to call."""
    calls = []

    def counted(x):
        calls.append(1)
        return x * len(calls)

    return Lambda(counted)


class Two(nn.Linear):
    """Returns a tuple."""

    def forward(self, x):
        return super().forward(x), x


def make_two():
    return Two(3, 2)


def make_misfit() -> nn.Module:
    return nn.Linear(7, 3)


def make_weight_norm() -> nn.Module:
    layer = nn.utils.parametrizations.weight_norm(nn.Linear(3, 4))
    return nn.Sequential(layer, nn.Tanh(), nn.Linear(4, 3))


class Recurrent(nn.Module):
    """A recurrent layer, or a loop of its cells, over the features."""

    def __init__(self, layer: str = "LSTM") -> None:
        super().__init__()
        given = {} if layer.endswith("Cell") else {"batch_first": True}
        self.layer = getattr(nn, layer)(1, 4, **given)
        self.out = nn.Linear(4, 3)

    def forward(self, x):
        if isinstance(self.layer, nn.RNNBase):
            return self.out(self.layer(x.unsqueeze(-1))[0][:, -1])
        state = None
        for feature in x.unsqueeze(-1).unbind(1):
            state = self.layer(feature, state)
        return self.out(state[0] if isinstance(state, tuple) else state)


class Broken(nn.Linear):
    """Fails when it is called."""

    def __init__(self) -> None:
        super().__init__(3, 3)

    def forward(self, x):
        return 1 / self.nothing


def make_broken() -> nn.Module:
    return Broken()


def make_wrong() -> nn.Module:
    return nn.Linear(3, -2)


def make_untyped() -> Any:
    linear: Any = nn.Linear
    return linear(3) + 1


class _OnceOnly(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x.abs().sqrt()

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx, slope):
        (x,) = ctx.saved_tensors
        return slope * x.sign() / x.abs().sqrt() / 2


class Rounded(nn.Module):
    """A layer that can be differentiated once."""

    def forward(self, x):
        return _OnceOnly.apply(x)


def make_rounded() -> nn.Module:
    return nn.Sequential(nn.Linear(3, 4), Rounded(), nn.Linear(4, 3))


class _OldWay(torch.autograd.Function):
    """A function as they were written before `setup_context`."""

    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x.sin()

    @staticmethod
    def backward(ctx, slope):
        (x,) = ctx.saved_tensors
        return slope * x.cos()


class OldWay(nn.Module):
    """A layer that no transform of functorch takes, with second derivatives."""

    def forward(self, x):
        return _OldWay.apply(x)


class Sine(nn.Module):
    """The same by torch's own function."""

    def forward(self, x):
        return x.sin()


def make_old_way(old: bool = True) -> nn.Module:
    act = OldWay() if old else Sine()
    return nn.Sequential(nn.Linear(3, 4), act, nn.Linear(4, 3))


def make_spectral() -> nn.Module:
    norm = nn.utils.parametrizations.spectral_norm(nn.Linear(3, 4))
    return nn.Sequential(norm, nn.Tanh(), nn.Linear(4, 3))


def make_limited() -> nn.Module:
    tokens = nn.Embedding(5, 2, max_norm=1.0)
    return nn.Sequential(tokens, nn.Flatten(), nn.Linear(6, 3))


class Cut(nn.Module):
    """A layer whose gradient hides on what it depends."""

    def forward(self, x):
        return _Cut.apply(x)


class _Cut(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.slope = x.detach().cos()
        return x.sin()

    @staticmethod
    def backward(ctx, slope):
        return slope * ctx.slope


def make_cut() -> nn.Module:
    return nn.Sequential(nn.Linear(3, 4), Cut(), nn.Linear(4, 3))


def make_recurrent(layer: str = "LSTM") -> nn.Module:
    return Recurrent(layer)


class Branching(nn.Module):
    """Takes one of two ways, by the weights' values."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.last = nn.Linear(3, 4), nn.Linear(4, 3)

    def forward(self, x):
        hidden = self.first(x)
        way = torch.tanh if self.first.bias.sum() > 0 else torch.sin
        return self.last(way(hidden))


def make_branching() -> nn.Module:
    return Branching()


class Attention(nn.Module):
    """One head of attention over the features."""

    def __init__(self) -> None:
        super().__init__()
        self.embed, self.out = nn.Linear(1, 6), nn.Linear(2, 3)

    def forward(self, x):
        parts = self.embed(x.unsqueeze(-1)).chunk(3, dim=-1)
        attend = nn.functional.scaled_dot_product_attention
        return self.out(attend(*parts).mean(1))


def make_attention() -> nn.Module:
    return Attention()


class Decoder(nn.Module):
    """A small language model: embeddings, causal attention and a tied head."""

    def __init__(self, vocabulary: int, length: int, width: int) -> None:
        super().__init__()
        self.tokens = nn.Embedding(vocabulary, width)
        self.places = nn.Embedding(length, width)
        self.norm = nn.LayerNorm(width)
        self.mix = nn.Linear(width, 3 * width)

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        assert ids.dtype == torch.int64
        length = ids.shape[-1]
        x = self.tokens(ids) + self.places.weight[:length]
        query, key, value = self.mix(self.norm(x)).chunk(3, dim=-1)
        scores = query @ key.transpose(-1, -2) / query.shape[-1] ** 0.5
        later = torch.ones(length, length, dtype=torch.bool).triu(1)
        x = x + scores.masked_fill(later, -1e9).softmax(-1) @ value
        return x @ self.tokens.weight.T


def make_decoder(vocabulary: int = 5, length: int = 4, width: int = 3) -> nn.Module:
    return Decoder(vocabulary, length, width)


class Bag(nn.Module):
    """The mean of embeddings, with a head."""

    def __init__(self, vocabulary: int) -> None:
        super().__init__()
        self.tokens = nn.Embedding(vocabulary, 3)
        self.head = nn.Linear(3, vocabulary)

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        return self.head(self.tokens(ids).mean(1))


def make_bag(vocabulary: int = 5) -> nn.Module:
    return Bag(vocabulary)


class Padded(nn.Module):
    """A mean over embeddings, one of which is a padding that is not zero."""

    def __init__(self) -> None:
        super().__init__()
        self.tokens, self.out = nn.Embedding(4, 2, padding_idx=1), nn.Linear(2, 3)
        nn.init.normal_(self.tokens.weight)

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        return self.out(self.tokens(input=ids).tanh().mean(1))


def make_padded() -> nn.Module:
    return Padded()


class Strided(nn.Module):
    """A group norm of channels that are last in memory, as attention leaves them."""

    def __init__(self) -> None:
        super().__init__()
        self.mix, self.norm = nn.Linear(2, 2), nn.GroupNorm(1, 2)
        self.out = nn.Linear(2, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        image = self.mix(x).mT.unflatten(-1, (2, 2))
        return self.out(self.norm(input=image).tanh().square().mean((2, 3)))


def make_strided() -> nn.Module:
    return Strided()


class Stopped(nn.Module):
    """Layers of which some are called with gradients switched off."""

    def __init__(self, stopped: list[int], how: str, when: str = "always") -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(3, 3) for _ in range(3))
        self.stopped, self.how, self.when = stopped, how, when

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        stops = {
            "always": True,
            "in training": self.training,
            "in evaluation": not self.training,
            "in odd batches": len(x) % 2 == 1,
        }
        stopped = self.stopped if stops[self.when] else []
        for number, layer in enumerate(self.layers):
            x = self._called(layer, x, is_stopped=number in stopped)
        return x

    def _called(
        self, layer: nn.Module, x: torch.Tensor, *, is_stopped: bool
    ) -> torch.Tensor:
        if self.how == "flag":
            with torch.set_grad_enabled(not is_stopped):
                more: torch.Tensor = layer(x)
            return x + more.tanh()
        if not is_stopped:
            return x + layer(x).tanh()
        if self.how == "decorated":
            more = torch.no_grad()(layer)(x)
        elif self.how == "set":
            torch.set_grad_enabled(False)
            more = layer(x)
            torch.set_grad_enabled(True)
        elif self.how == "within":
            with torch.no_grad():
                more = layer(x)
                with torch.enable_grad():
                    more = more + layer(x)
        elif self.how == "detach":
            more = layer(x).detach()
        elif self.how == "data":
            more = layer(x).data
        else:
            with torch.no_grad():
                more = layer(x)
        return x + more.tanh()


def make_stopped(stopped: list[int], how: str, when: str = "always") -> nn.Module:
    return Stopped(stopped, how, when)


class Variational(nn.Linear):
    """A layer that draws its weights in training, as a Bayesian layer does."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if not self.training:
            return super().forward(x)
        noise = 0.3 * torch.randn_like(self.weight)
        return nn.functional.linear(x, self.weight + noise, self.bias)


def make_variational() -> nn.Module:
    return nn.Sequential(Variational(3, 4), nn.Tanh(), Variational(4, 3))


class Divided(nn.Module):
    """Scales its inputs by a number."""

    def __init__(self) -> None:
        super().__init__()
        self.out = nn.Linear(3, 2)

    def forward(self, x):
        return self.out(x / 9)


def make_divided() -> nn.Module:
    return Divided()


def make_linear(inputs: int) -> nn.Module:
    return nn.Linear(inputs, 2)


class Scaled(nn.Module):
    """A linear layer times a buffer that single precision cannot hold."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(3, 3)
        self.register_buffer("scale", torch.tensor(1 / 3, dtype=torch.float64))

    def forward(self, x):
        return self.linear(x) * self.scale


def make_scaled() -> nn.Module:
    return Scaled()


def make_data(num_samples: int = 10) -> dict[str, np.ndarray]:
    x = np.linspace(0, 1, 2 * num_samples).reshape(-1, 2)
    return {"inputs": x, "targets": x.sum(1)}


def make_pair() -> tuple[np.ndarray, np.ndarray]:
    return np.eye(4), np.array([0, 1, 1, 0])


def make_clouds() -> tuple[np.ndarray, np.ndarray]:
    data = blobs()
    return data["inputs"], data["targets"].astype(int)


def make_nonsense() -> str:
    return "no data"


def make_typo() -> dict[str, np.ndarray]:
    return {"input": np.eye(4), "targets": np.ones(4)}
