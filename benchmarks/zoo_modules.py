"""Modules of other packages, made tiny, with data that they can learn.

Nothing is downloaded: each is built by its configuration, with random weights.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

VOCABULARY, TOKENS, CLASSES, NODES, SIDE = 12, 8, 3, 6, 8

# Operators of torchvision's extension, by which its Python code names them.
OPERATORS = (
    "nms",
    "qnms",
    "roi_align",
    "_roi_align_backward",
    "roi_pool",
    "_roi_pool_backward",
    "ps_roi_align",
    "_ps_roi_align_backward",
    "ps_roi_pool",
    "_ps_roi_pool_backward",
    "deform_conv2d",
    "_deform_conv2d_backward",
)

Arrays = tuple[NDArray[Any], NDArray[Any]]


def walks(samples: int = 64) -> Arrays:
    """Return walks on a ring, most of whose steps are by one, and the token after."""
    draws = np.random.default_rng(0)
    steps = np.where(draws.random((samples, TOKENS + 1)) < 0.8, 1, 5)
    ids = (draws.integers(0, VOCABULARY, (samples, 1)) + steps.cumsum(1)) % VOCABULARY
    return ids[:, :-1], ids[:, 1:]


def sentences(samples: int = 64) -> Arrays:
    """Return rows of tokens, and which third of the vocabulary they begin with."""
    ids = np.random.default_rng(0).integers(0, VOCABULARY, (samples, TOKENS))
    return ids, ids[:, 0] * CLASSES // VOCABULARY


def images(channels: int = 1, side: int = SIDE, samples: int = 64) -> Arrays:
    """Return noisy images of one pattern for each class, and the class."""
    draws = np.random.default_rng(0)
    patterns = draws.normal(size=(CLASSES, channels, side, side))
    labels = draws.integers(0, CLASSES, samples)
    noise = draws.normal(size=(samples, channels, side, side))
    return patterns[labels] + 0.5 * noise, labels


def noised(samples: int = 32) -> Arrays:
    """Return a time and a pattern with noise of that time, and the noise."""
    draws = np.random.default_rng(0)
    pattern = draws.normal(size=SIDE * SIDE)
    times, noise = draws.random((samples, 1)), draws.normal(size=(samples, SIDE**2))
    mixed = np.sqrt(1 - times) * pattern + np.sqrt(times) * noise
    return np.hstack([1000 * times, mixed]), noise


def waves(samples: int = 64) -> Arrays:
    """Return points of a square, and a function of both of their coordinates."""
    points = np.random.default_rng(0).uniform(-1, 1, (samples, 2))
    return points, np.sin(3 * points[:, :1]) * points[:, 1:]


def signals(samples: int = 64) -> Arrays:
    """Return features of the nodes of a ring, and a class by two neighbours."""
    nodes = np.random.default_rng(0).normal(size=(samples, NODES, 2))
    sums = nodes[:, 0, 0] + nodes[:, 1, 0]
    return nodes, np.digitize(sums, [-0.6, 0.6])


class Logits(nn.Module):
    """What a module of transformers scores, without the mapping around it."""

    def __init__(self, inner: nn.Module) -> None:
        """Take the module."""
        super().__init__()
        self.inner = inner

    def forward(self, ids: Tensor) -> Tensor:
        """Return the scores."""
        return self.inner(ids).logits


def transformers(config: str, model: str, **settings: Any) -> nn.Module:
    """Return a module of transformers, by the names of its two classes."""
    _define_operators()
    package = import_module("transformers")
    return Logits(getattr(package, model)(getattr(package, config)(**settings)))


def timm(name: str, **settings: Any) -> nn.Module:
    """Return a module of timm for images of one channel."""
    _define_operators()
    package = import_module("timm")
    return package.create_model(name, num_classes=CLASSES, in_chans=1, **settings)


# A library of operators is gone with its object.
_DEFINED: list[torch.library.Library] = []


def _define_operators() -> None:
    try:
        import_module("torchvision")
    except RuntimeError:
        # A torchvision built for another PyTorch: its extension is not loaded, and its
        # import fails at the first operator that it names. timm and transformers import
        # it where it is installed, and no module here calls any of them.
        if not _DEFINED:
            _DEFINED.append(torch.library.Library("torchvision", "DEF"))
            for name in OPERATORS:
                _DEFINED[0].define(f"{name}(Tensor x) -> Tensor")


def x_decoder(width: int = 8) -> nn.Module:
    """Return a decoder of x-transformers."""
    package = import_module("x_transformers")
    layers = package.Decoder(dim=width, depth=1, heads=2, attn_dim_head=4)
    return package.TransformerWrapper(
        num_tokens=VOCABULARY, max_seq_len=TOKENS, attn_layers=layers
    )


class GraphNet(nn.Module):
    """Two graph convolutions over a ring of nodes, and a layer of their mean."""

    def __init__(self, width: int = 8) -> None:
        """Make the layers."""
        super().__init__()
        convolution = import_module("torch_geometric.nn").GCNConv
        self.first, self.second = convolution(2, width), convolution(width, width)
        self.last = nn.Linear(width, CLASSES)
        places = torch.arange(NODES)
        ring = torch.stack([places, (places + 1) % NODES])
        self.register_buffer("edges", torch.cat([ring, ring.flip(0)], dim=1))

    def forward(self, nodes: Tensor) -> Tensor:
        """Return a score of each class."""
        hidden = self.first(nodes, self.edges).tanh()
        return self.last(self.second(hidden, self.edges).tanh().mean(-2))


class Recurrent(nn.Module):
    """A language model by nn.LSTM."""

    def __init__(self, width: int = 8) -> None:
        """Make the layers."""
        super().__init__()
        self.tokens = nn.Embedding(VOCABULARY, width)
        self.lstm = nn.LSTM(width, width, batch_first=True)
        self.head = nn.Linear(width, VOCABULARY)

    def forward(self, ids: Tensor) -> Tensor:
        """Return a score for each token that may come next."""
        return self.head(self.lstm(self.tokens(ids))[0])


class Denoiser(nn.Module):
    """A U-Net of diffusers, of a time and an image in one row."""

    def __init__(self, width: int = 2) -> None:
        """Make the layers."""
        super().__init__()
        _define_operators()
        self.net = import_module("diffusers").UNet2DModel(
            sample_size=SIDE,
            in_channels=1,
            out_channels=1,
            block_out_channels=(width, width),
            layers_per_block=1,
            down_block_types=("DownBlock2D", "AttnDownBlock2D"),
            up_block_types=("AttnUpBlock2D", "UpBlock2D"),
            norm_num_groups=2,
            attention_head_dim=2,
        )

    def forward(self, rows: Tensor) -> Tensor:
        """Return the noise in the image."""
        pixels = rows[:, 1:].unflatten(1, (1, SIDE, SIDE))
        return self.net(pixels, rows[:, 0]).sample.flatten(1)


def _bayes_linear(inputs: int, outputs: int) -> nn.Module:
    package = import_module("torchbnn")
    return package.BayesLinear(
        prior_mu=0, prior_sigma=0.1, in_features=inputs, out_features=outputs
    )


def bayesian(width: int = 8) -> nn.Module:
    """Return a network of torchbnn, which draws its weights in evaluation too."""
    return nn.Sequential(_bayes_linear(2, width), nn.Tanh(), _bayes_linear(width, 1))


class Mean(nn.Module):
    """A layer of torchbnn that draws in training alone, and has its mean otherwise."""

    def __init__(self, inputs: int, outputs: int) -> None:
        """Make the layer."""
        super().__init__()
        self.drawn = _bayes_linear(inputs, outputs)

    def forward(self, x: Tensor) -> Tensor:
        """Return the outputs of drawn weights, or of their means."""
        if self.training:
            return self.drawn(x)
        means = dict(self.drawn.named_parameters())
        return nn.functional.linear(x, means["weight_mu"], means["bias_mu"])


def bayesian_mean(width: int = 8) -> nn.Module:
    """Return the same network, which draws in training alone."""
    return nn.Sequential(Mean(2, width), nn.Tanh(), Mean(width, 1))


def kan(width: int = 3, **settings: Any) -> nn.Module:
    """Return a network of pykan, which writes no files.

    It seeds the global generator by itself, and gets the seed that this has.
    """
    return import_module("kan").KAN(
        width=[2, width, 1],
        grid=3,
        k=3,
        auto_save=False,
        seed=torch.initial_seed() % 2**32,
        **settings,
    )


def siren(width: int = 8) -> nn.Module:
    """Return a network of sines."""
    return import_module("siren_pytorch").SirenNet(
        dim_in=2, dim_hidden=width, dim_out=1, num_layers=2, w0_initial=5.0
    )
