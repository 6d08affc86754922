"""Small decoders on the characters of a book, as modules and as curvflow has them.

Parameters are in the order of curvflow's `transformer`, and the attention is PyTorch's
own function in the form that has second derivatives.
"""

from __future__ import annotations

from pathlib import Path

import torch
from torch import Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel

from curvflow.schemas.models.sequences.transformer import Transformer

# The first chapter of Lewis Carroll's book of 1865.
BOOK = Path(__file__).parents[1] / "studies" / "language" / "alice.txt"
LENGTH, WIDTH, HEADS, LAYERS = 16, 32, 4, 2


class Attend(nn.Module):
    """Attention of each token to itself and those before it."""

    def __init__(self) -> None:
        super().__init__()
        self.query, self.key, self.value, self.out = (
            nn.Linear(WIDTH, WIDTH) for _ in range(4)
        )

    def forward(self, x: Tensor) -> Tensor:
        """Return the joined heads, (N, T, W)."""
        q, k, v = (
            layer(x).unflatten(2, (HEADS, -1)).transpose(1, 2)
            for layer in (self.query, self.key, self.value)
        )
        with sdpa_kernel(SDPBackend.MATH):
            y = nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.out(y.transpose(1, 2).flatten(2))


class Added(nn.Module):
    """A body behind a layer norm, beside a shortcut."""

    def __init__(self, body: nn.Module) -> None:
        super().__init__()
        self.norm, self.body = nn.LayerNorm(WIDTH), body

    def forward(self, x: Tensor) -> Tensor:
        """Return the sum of both."""
        return x + self.body(self.norm(x))


class Places(nn.Module):
    """Learned vectors of the places, which are added."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(LENGTH, WIDTH))

    def forward(self, x: Tensor) -> Tensor:
        """Return tokens that know their places, (N, T, W)."""
        return x + self.weight


class Decoder(nn.Module):
    """The next character behind each window."""

    def __init__(self, vocabulary: int) -> None:
        super().__init__()
        self.tokens, self.places = nn.Embedding(vocabulary, WIDTH), Places()
        bodies = (
            body
            for _ in range(LAYERS)
            for body in (
                Attend(),
                nn.Sequential(
                    nn.Linear(WIDTH, 4 * WIDTH),
                    nn.GELU(),
                    nn.Linear(4 * WIDTH, WIDTH),
                ),
            )
        )
        self.blocks = nn.Sequential(*map(Added, bodies), nn.LayerNorm(WIDTH))
        self.head = nn.Linear(WIDTH, vocabulary)

    def forward(self, tokens: Tensor) -> Tensor:
        """Return the outputs of the last token, (N, C)."""
        x = self.blocks(self.places(self.tokens(tokens)))
        out: Tensor = self.head(x[:, -1])
        return out


def spec(vocabulary: int) -> Transformer:
    """Return the same as a model of a study."""
    return Transformer(
        vocabulary=vocabulary,
        layers=LAYERS,
        width=WIDTH,
        heads=HEADS,
        positions="learned",
    )


def windows(count: int) -> tuple[Tensor, Tensor, int]:
    """Return windows of the book as tokens, what follows each, and the vocabulary."""
    text = BOOK.read_text(encoding="utf-8").lower()
    names = sorted(set(text))
    ids = torch.tensor([names.index(letter) for letter in text])
    rows = ids.unfold(0, LENGTH + 1, 7)[:count]
    return rows[:, :-1].contiguous(), rows[:, -1].contiguous(), len(names)
