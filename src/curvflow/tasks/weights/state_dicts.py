"""Files of tensors as PyTorch programs write them, read without running any code."""

from __future__ import annotations

import io
import re
from collections.abc import Iterator, Mapping
from typing import Any

import torch
from safetensors.torch import load as load_safetensors
from torch import Tensor

from curvflow.errors import InputError, summary
from curvflow.schemas.nodes import Array

SAFETENSORS = ".safetensors"


def read_tensors(content: bytes, name: str, field: str) -> dict[str, Array]:
    """Return the tensors of a file by dotted names, those of nested dictionaries too.

    Args:
        content: of a file that `torch.save` or `safetensors` wrote.
        name: of the file; its suffix says which.
        field: the parameter that names the file, for messages.

    Returns:
        Arrays as `state_dict.layer.weight`, a single tensor as `array`; half precisions
        as float32. Numbers, texts and the like among them, such as an epoch, are left
        out.

    Raises:
        InputError: it is no such file, or holds objects that only code could make.
    """
    try:
        loaded = (
            load_safetensors(content)
            if name.endswith(SAFETENSORS)
            else torch.load(io.BytesIO(content), map_location="cpu", weights_only=True)
        )
    # Either library raises what it likes of a file that is none of its own.
    except Exception as error:
        raise InputError(f"{field}: {_refusal(content, name, str(error))}") from error
    tensors = dict(_tensors(loaded, ""))
    if not tensors and isinstance(loaded, Mapping):
        raise InputError(
            f"{field}: expected tensors in {name}, got none. Save a state_dict."
        )
    if not tensors:
        raise InputError(
            f"{field}: expected a dictionary of tensors in {name}, got "
            f"{_described(loaded)}. Write torch.save(module.state_dict(), path)."
        )
    arrays = {}
    for key, tensor in tensors.items():
        try:
            arrays[key] = _array(tensor)
        # Torch has tensors that NumPy has no like of, and says so in several ways.
        except (TypeError, RuntimeError) as error:
            raise InputError(
                f"{field}: expected tensors of plain numbers in {name}, got '{key}' of "
                f"{tensor.dtype} on {tensor.device} ({summary(error)}). Save it as "
                "numbers, as by dequantize(), or leave it out."
            ) from error
    return arrays


def _refusal(content: bytes, name: str, said: str) -> str:
    if other := re.search(r"GLOBAL (\S+)", said):
        return (
            f"expected tensors alone in {name}, got an object of "
            f"{other[1]}, which only code could make. Write "
            "torch.save(module.state_dict(), path)."
        )
    # An archive, or a pickle of protocol 2 or later.
    if content.startswith((b"PK", b"\x80")) and "Unsupported operand" in said:
        return (
            f"expected tensors alone in {name}, got a pickle that does more than make "
            "them, or of protocol 4 or 5. Write torch.save(module.state_dict(), path)."
        )
    written_by = "safetensors" if name.endswith(SAFETENSORS) else "torch.save"
    return (
        f"expected a file that {written_by} wrote, got {name}, which is none. "
        "Write torch.save(module.state_dict(), path)."
    )


def _described(value: object) -> str:
    """Return what a file holds in place of tensors, as `a list of 3 float`."""
    kind = type(value).__name__
    if not isinstance(value, list | tuple | set | frozenset):
        return "None" if value is None else f"one {kind}"
    types = sorted({type(item).__name__ for item in value})
    return f"a {kind} of {len(value)} {', '.join(types)}".rstrip()


def _tensors(value: Any, path: str) -> Iterator[tuple[str, Tensor]]:
    if isinstance(value, Tensor):
        yield path.removesuffix(".") or "array", value
    elif isinstance(value, Mapping):
        for key, part in value.items():
            yield from _tensors(part, f"{path}{key}.")
    elif isinstance(value, list | tuple):
        for number, part in enumerate(value):
            yield from _tensors(part, f"{path}{number}.")


def _array(tensor: Tensor) -> Array:
    plain = tensor.detach().resolve_conj().resolve_neg()
    if plain.layout is not torch.strided:
        plain = plain.to_dense()
    if plain.is_floating_point() and plain.dtype not in (torch.float32, torch.float64):
        plain = plain.float()
    array: Array = plain.numpy()
    return array
