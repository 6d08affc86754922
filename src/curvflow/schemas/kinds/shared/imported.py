"""Parameters and checks of networks that another program has trained."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from fnmatch import fnmatchcase, translate
from typing import Annotated

import numpy as np
from pydantic import Field

from curvflow.errors import InputError, nearest_of_many
from curvflow.schemas.losses import LossSpec
from curvflow.schemas.models import ModelSpec
from curvflow.schemas.nodes import Array
from curvflow.schemas.params import Names, Neutral, Params, SourceFile

# Parts of names that PyTorch adds for modules that are compiled, in place or sharded.
WRAPPED = re.compile(
    r"(?<=\.)(_orig_mod|_fsdp_wrapped_module|_checkpoint_wrapped_module)\."
)


class ImportedParams(Params):
    """Files, the network that their arrays belong to, and what these are called."""

    path: Annotated[str | None, SourceFile()] = Field(
        None,
        description="file of named arrays, such as a state_dict: .npz, .safetensors, "
        "or .pt, .pth, .ckpt, .bin of torch.save; or a folder with model.safetensors "
        "or pytorch_model.bin",
    )
    model: ModelSpec = Field(description="the network: a kind, or a factory's module")
    loss: LossSpec = Field(
        "auto",
        description="that it was trained with, as of `train`; probes take its "
        "curvature",
    )
    names: dict[str, str] = Field(
        default_factory=dict,
        description="of a tensor of the network, that of its array, where they differ",
    )
    prefix: Annotated[str | None, Neutral(None)] = Field(
        None,
        description="what the names of its arrays begin with, such as "
        "state_dict.model.; null takes the one under which the network is found",
    )
    ignore: Annotated[Names, Neutral(())] = Field(
        (),
        description="arrays below the prefix, by name or pattern, that are left aside, "
        "such as *.attn.masked_bias; never one that the network needs",
    )


def check_arrays(
    params: ImportedParams, arrays: Mapping[str, Array], source: str
) -> None:
    """Refuse arrays that are no weights, before anything is computed.

    Args:
        params: names of the arrays.
        arrays: of one network.
        source: the parameter that names their file, for messages.

    Raises:
        InputError: they are a single array, one is not of finite numbers, or one that
            `names` or `ignore` names is not there.
    """
    if set(arrays) == {"array"} and "array" not in params.names.values():
        raise InputError(
            f"{source}: expected a file of named arrays, got a single array. Write it "
            "by np.savez, a name for each tensor."
        )
    prefix = whole_prefix(params.prefix or "", arrays)
    if prefix and not any(name.startswith(prefix) for name in arrays):
        known = next(iter(arrays), "none")
        raise InputError(
            f"prefix: expected the beginning of names such as {known}, got '{prefix}'. "
            "Correct it, or remove prefix."
        )
    ignored = _ignored(params.ignore, arrays)
    for name, array in arrays.items():
        # Infinity may be in a mask, or beside the network; none is taken for weights.
        is_taken = name.startswith(prefix) and name not in ignored
        if is_taken and array.dtype.kind in "fiub" and np.isnan(array).any():
            raise InputError(
                f"{source}: expected finite numbers, got NaN in the array '{name}'. "
                "Take weights that have not diverged, or say by `prefix` which are "
                "the network's."
            )
    for tensor, name in params.names.items():
        plain, start = unwrapped(arrays, prefix, [name])
        if not starts_below(params.prefix, start, prefixes(plain, [name])):
            raise InputError(
                f"names.{tensor}: expected an array of the file, got '{name}'. "
                f"{nearest_of_many(name, arrays)}"
            )


def _ignored(patterns: Sequence[str], arrays: Collection[str]) -> set[str]:
    """Return the names that patterns match, behind whatever prefix.

    Raises:
        InputError: one matches none; the nearest name is named.
    """
    ignored = set[str]()
    for pattern in patterns:
        behind = re.compile(rf"(.*\.)?({translate(pattern)})", re.DOTALL)
        matching = {name for name in arrays if behind.fullmatch(name)}
        if not matching:
            raise InputError(
                "ignore: expected the name of an array of the file, or a pattern of "
                f"some, got '{pattern}'. {nearest_of_many(pattern, arrays)}"
            )
        ignored |= matching
    return ignored


def without_ignored(
    params: ImportedParams, arrays: Mapping[str, Array], needed: Collection[str]
) -> dict[str, Array]:
    """Return the arrays that are not left aside.

    Args:
        params: patterns of those that are.
        arrays: of the file, without the prefix.
        needed: names of those that the network needs.
    """
    return {
        name: array
        for name, array in arrays.items()
        if name in needed or not any(fnmatchcase(name, p) for p in params.ignore)
    }


def whole_prefix(prefix: str, arrays: Mapping[str, Array]) -> str:
    """Return a prefix with the point behind it, if names have one there.

    Args:
        prefix: as it was given.
        arrays: of the file.
    """
    whole = f"{prefix}."
    lacks = bool(prefix) and any(name.startswith(whole) for name in arrays)
    return whole if lacks else prefix


def unwrapped(
    arrays: Mapping[str, Array], prefix: str, wanted: Sequence[str]
) -> tuple[Mapping[str, Array], str]:
    """Return names of arrays, and a prefix of them, without the parts of wrappers.

    Args:
        arrays: of the file.
        prefix: with the point behind it.
        wanted: names of the network's arrays.

    Returns:
        As many arrays, `0._orig_mod.weight` as `0.weight`, and the prefix likewise;
        both as they were where all wanted ones are there, where one has such a part,
        and where two arrays would have one name.
    """
    plain = {WRAPPED.sub("", name): array for name, array in arrays.items()}
    has_own = any(WRAPPED.search(f".{name}") for name in wanted)
    if has_own or prefixes(arrays, wanted) or len(plain) < len(arrays):
        return arrays, prefix
    return plain, WRAPPED.sub("", prefix)


def starts_below(given: str | None, prefix: str, starts: Sequence[str]) -> list[str]:
    """Return those of several prefixes that are, or are below, the one that was given.

    Args:
        given: the parameter; null takes all, and the empty one is that at the top.
        prefix: the same with the point behind it.
        starts: prefixes below which the network's names are.
    """
    if given is None:
        return list(starts)
    if prefix in starts or not prefix:
        return [start for start in starts if start == prefix]
    return [start for start in starts if start.startswith(prefix)]


def prefixes(arrays: Mapping[str, Array], names: Sequence[str]) -> list[str]:
    """Return what precedes all of these names in a file, in whole parts.

    Args:
        arrays: of the file.
        names: at least one.
    """
    first = names[0]
    starts = dict.fromkeys(n.removesuffix(first) for n in arrays if n.endswith(first))
    return [
        start
        for start in starts
        if (not start or start.endswith("."))
        and all(start + name in arrays for name in names)
    ]
