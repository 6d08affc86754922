"""Random functions of torch, drawn from each model's stream in training."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from types import FunctionType
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F
from torch.overrides import TorchFunctionMode

# From a shape to uniform numbers in [0, 1) of that shape.
Uniform = Callable[[tuple[int, ...]], Tensor]

# Of the law that units far below zero take in a self-normalising network: Klambauer et
# al. (2017), arXiv:1706.02515.
SATURATION = 1.7580993408473766


class Drawn(TorchFunctionMode):
    """Within it torch's random functions take their numbers from a source given.

    These are dropout layers of all sorts, dropout of attention, `torch.rand`, `randn`,
    `randint`, `randperm`, `bernoulli`, `normal`, their like and the methods of tensors
    that fill them at random. What draws within a kernel, such as the dropout of
    `nn.LSTM`, or from a generator of its own, is left as it is.
    """

    def __init__(self, uniform: Uniform) -> None:
        """Take the source of uniform numbers."""
        super().__init__()
        self._uniform = uniform

    def __torch_function__(
        self,
        func: Any,
        types: Sequence[type],
        args: tuple[Any, ...] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        """Call a function, or what stands in for it."""
        given = dict(kwargs or {})
        if func in _COMPOSED:
            with self:
                return _COMPOSED[func](*args, **given)
        if func in _DRAWING and given.get("generator") is None:
            return _DRAWING[func](self._uniform, *args, **given)
        return func(*args, **given)


def _unhooked(function: Any) -> FunctionType:
    """Return a function of torch that calls random ones, so that these are seen.

    Each first asks whether it is overridden as a whole, which within a mode it is.
    """
    asked = [name for name in vars(F) if "has_torch_function" in name]
    known = {**vars(F), **dict.fromkeys(asked, lambda *_: False)}
    parts = (function.__name__, function.__defaults__, function.__closure__)
    twin = FunctionType(function.__code__, known, *parts)
    twin.__kwdefaults__ = function.__kwdefaults__
    return twin


_COMPOSED = {
    function: _unhooked(function)
    for function in (
        F.dropout,
        F.dropout1d,
        F.dropout2d,
        F.dropout3d,
        F.alpha_dropout,
        F.feature_alpha_dropout,
        F.rrelu,
        F.gumbel_softmax,
        F.multi_head_attention_forward,
    )
}


def _drops(*, whole: bool, alpha: bool) -> tuple[Callable[..., Tensor], ...]:
    """Return a dropout, and the one in place.

    Args:
        whole: channels are dropped, each as a whole.
        alpha: they take the saturated value, and moments are kept.
    """

    def drop(uniform: Uniform, x: Tensor, p: float, train: bool) -> Tensor:
        if not train or p == 0:
            return x
        shape = (*x.shape[:2], *[1] * (x.ndim - 2)) if whole else tuple(x.shape)
        kept = uniform(shape) >= p
        if not alpha:
            return x * kept / (1 - p) if p < 1 else x * 0
        if p == 1:
            return x * 0
        scale = 1 / math.sqrt((SATURATION**2 * p + 1) * (1 - p))
        shift = SATURATION * scale * p
        return torch.where(kept, scale * x, -SATURATION * scale) + shift

    def drop_(uniform: Uniform, x: Tensor, p: float, train: bool) -> Tensor:
        return x.copy_(drop(uniform, x, p, train))

    return drop, drop_


def _rrelu(
    uniform: Uniform,
    x: Tensor,
    lower: float = 1 / 8,
    upper: float = 1 / 3,
    training: bool = False,
) -> Tensor:
    if not training:
        return torch.rrelu(x, lower, upper, training=False)
    slope = lower + (upper - lower) * uniform(tuple(x.shape))
    return torch.where(x >= 0, x, slope * x)


def _attention(
    uniform: Uniform,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> Tensor:
    if dropout_p == 0:
        return F.scaled_dot_product_attention(
            query,
            key,
            value,
            attn_mask,
            is_causal=is_causal,
            scale=scale,
            enable_gqa=enable_gqa,
        )
    if enable_gqa:
        groups = query.shape[-3] // key.shape[-3]
        key, value = (t.repeat_interleave(groups, -3) for t in (key, value))
    scale = query.shape[-1] ** -0.5 if scale is None else scale
    scores = (query * scale) @ key.transpose(-2, -1)
    if is_causal:
        attn_mask = torch.ones(
            scores.shape[-2:], dtype=torch.bool, device=query.device
        ).tril()
    if attn_mask is not None and attn_mask.dtype == torch.bool:
        scores = scores.masked_fill(~attn_mask, -torch.inf)
    elif attn_mask is not None:
        scores = scores + attn_mask
    drop, _ = _drops(whole=False, alpha=False)
    outputs: Tensor = drop(uniform, scores.softmax(-1), dropout_p, True) @ value
    return outputs


def _shape(size: Sequence[Any]) -> tuple[int, ...]:
    return tuple(size[0] if len(size) == 1 and not isinstance(size[0], int) else size)


def _normal_law(uniform: Tensor) -> Tensor:
    # In the middle of the steps of single precision, for zero has no quantile.
    quantiles: Tensor = torch.special.ndtri(uniform.double() + 2.0**-25)
    return quantiles.to(uniform.dtype)


def _exponential_law(uniform: Tensor) -> Tensor:
    return -torch.log1p(-uniform)


def _made(
    law: Callable[[Tensor], Tensor],
) -> tuple[Callable[..., Tensor], Callable[..., Tensor]]:
    """Return what makes a tensor of a law by its size, and by a tensor like it."""

    def by_size(uniform: Uniform, *size: Any, **given: Any) -> Tensor:
        shape = _shape((given["size"],) if "size" in given else size)
        dtype = given.get("dtype") or torch.get_default_dtype()
        return law(uniform(shape)).to(dtype=dtype, device=given.get("device"))

    def like(uniform: Uniform, x: Tensor, **given: Any) -> Tensor:
        numbers = law(uniform(tuple(x.shape)))
        return numbers.to(dtype=given.get("dtype") or x.dtype)

    return by_size, like


def _integers(uniform: Uniform, low: int, high: int, shape: tuple[int, ...]) -> Tensor:
    return (low + (high - low) * uniform(shape)).floor().clamp_max(high - 1).long()


def _randint(uniform: Uniform, *bounds: Any, **given: Any) -> Tensor:
    size = given.get("size")
    if size is None:
        *bounds, size = bounds  # type: ignore[assignment] # a list of the rest
    low, high = (*[0] * (2 - len(bounds)), *bounds)[-2:]
    low, high = given.get("low", low), given.get("high", high)
    drawn = _integers(uniform, low, high, tuple(size))
    return drawn.to(dtype=given.get("dtype"), device=given.get("device"))


def _randint_like(uniform: Uniform, x: Tensor, *bounds: int, **given: Any) -> Tensor:
    low, high = (0, *bounds)[-2:]
    drawn = _integers(
        uniform, given.get("low", low), given.get("high", high), tuple(x.shape)
    )
    return drawn.to(dtype=given.get("dtype") or x.dtype)


def _randperm(uniform: Uniform, n: int, **given: Any) -> Tensor:
    return uniform((n,)).argsort().to(given.get("dtype") or torch.int64)


def _bernoulli(uniform: Uniform, x: Tensor, p: Any = None, **_: Any) -> Tensor:
    return (uniform(tuple(x.shape)) < (x if p is None else p)).to(x.dtype)


def _bernoulli_(uniform: Uniform, x: Tensor, p: Any = 0.5, **_: Any) -> Tensor:
    return x.copy_(uniform(tuple(x.shape)) < p)


def _normal(
    uniform: Uniform, mean: Any = 0.0, std: Any = 1.0, size: Any = None, **_: Any
) -> Tensor:
    spread = torch.as_tensor(std) + 0 * torch.as_tensor(mean)
    shape = spread.shape if size is None else size
    drawn: Tensor = mean + spread * _normal_law(uniform(tuple(shape)))
    return drawn.to(spread.dtype)


def _normal_(
    uniform: Uniform, x: Tensor, mean: float = 0, std: float = 1, **_: Any
) -> Tensor:
    return x.copy_(mean + std * _normal_law(uniform(tuple(x.shape))))


def _uniform_(
    uniform: Uniform, x: Tensor, a: float = 0, b: float = 1, **given: Any
) -> Tensor:
    low, high = given.get("from", a), given.get("to", b)
    return x.copy_(low + (high - low) * uniform(tuple(x.shape)))


def _exponential_(uniform: Uniform, x: Tensor, lambd: float = 1, **_: Any) -> Tensor:
    return x.copy_(_exponential_law(uniform(tuple(x.shape))) / lambd)


# A dropout and the one in place: of what, and in which way.
_DROPS = {
    (torch.dropout, torch.dropout_): _drops(whole=False, alpha=False),
    (torch.feature_dropout, torch.feature_dropout_): _drops(whole=True, alpha=False),
    (torch.alpha_dropout, torch.alpha_dropout_): _drops(whole=False, alpha=True),
    (torch.feature_alpha_dropout, torch.feature_alpha_dropout_): _drops(
        whole=True, alpha=True
    ),
}

_DRAWING: dict[Any, Callable[..., Tensor]] = {
    **{
        f: d for both, drops in _DROPS.items() for f, d in zip(both, drops, strict=True)
    },
    **dict(zip((torch.rand, torch.rand_like), _made(torch.Tensor.clone), strict=True)),
    **dict(zip((torch.randn, torch.randn_like), _made(_normal_law), strict=True)),
    torch.rrelu: _rrelu,
    F.scaled_dot_product_attention: _attention,
    torch.randint: _randint,
    torch.randint_like: _randint_like,
    torch.randperm: _randperm,
    torch.bernoulli: _bernoulli,
    torch.Tensor.bernoulli: _bernoulli,
    torch.Tensor.bernoulli_: _bernoulli_,
    torch.normal: _normal,
    torch.Tensor.normal_: _normal_,
    torch.Tensor.uniform_: _uniform_,
    torch.Tensor.exponential_: _exponential_,
}
