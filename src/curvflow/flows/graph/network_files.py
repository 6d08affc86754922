"""Files of networks: in a folder of one network, and in a folder of checkpoints."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path

from curvflow.errors import InputError
from curvflow.flows.reads.places import file_content_digest
from curvflow.schemas.keys import sha256
from curvflow.schemas.kinds.weights.checkpoints import CheckpointsParams

# Suffixes of files that torch.save or safetensors writes.
TENSOR_FILES = (".pt", ".pth", ".ckpt", ".bin", ".safetensors")
ARRAY_FILES = (*TENSOR_FILES, ".npz")

# A network in a folder, as Transformers names it, in the order in which it looks.
STANDARD = ("model.safetensors", "pytorch_model.bin")
INDEX = ".index.json"  # behind the name of a network in several files

# What trainers keep beside the network.
BESIDE = re.compile(r"(optimizer|scheduler|scaler|rng_state|training_args)([._-].*)?")

# Before a step, the first of which that a name has; a part of a number is no step.
WORDS = (r"steps?", r"iter(?:ation)?s?", r"checkpoint|ckpt", r"epochs?")
STEP_PATTERNS = tuple(
    re.compile(
        rf"(?<![a-z])(?:{word})[ =_-]?(\d+)(?![.,]?\d|_\d{{3}}(?!\d)|[km]\b|e\d)",
        re.IGNORECASE,
    )
    for word in WORDS
)
NUMBER = re.compile(r"(\d+)")
MOST = (1 << 63) - 1
FEW = 12  # names or steps that a message lists


def network_files(folder: Path) -> tuple[Path, ...]:
    """Return the files of the one network in a folder.

    Args:
        folder: with `model.safetensors`, `pytorch_model.bin`, the files that the index
            of either lists, or else a single file of arrays.

    Raises:
        InputError: it holds no network, several, or not all files of one.
    """
    for name in STANDARD:
        if (folder / name).is_file():
            return (folder / name,)
        if (folder / f"{name}{INDEX}").is_file():
            return _shards(folder / f"{name}{INDEX}")
    alone = [path for path in _entries(folder) if path.is_file() and _is_network(path)]
    if len(alone) == 1:
        return tuple(alone)
    got = _listed([path.name for path in alone])
    raise InputError(
        f"expected {' or '.join(STANDARD)} in {folder.name}, or one file of arrays, "
        f"got {got or 'none'}. Name a file, or take weights.checkpoints for a folder "
        "of several."
    )


def _shards(index: Path) -> tuple[Path, ...]:
    """Return the files that an index lists, in the order of their names."""
    try:
        names = set(
            json.loads(index.read_text(encoding="utf-8"))["weight_map"].values()
        )
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise InputError(
            f"expected an index with a weight_map, got {index.name}, which has none. "
            "Save the model again, or name a file."
        ) from error
    # An index that others wrote leads to no file elsewhere.
    folder = index.parent
    for name in sorted(map(str, names)):
        if Path(name).name != name or not (folder / name).is_file():
            raise InputError(
                f"expected the file {name} that {index.name} lists, got none beside "
                "it. Bring all files of the network."
            )
    if not names:
        raise InputError(
            f"expected the files of a network in {index.name}, got none. Save the "
            "model again, or name a file."
        )
    return tuple(folder / name for name in sorted(names))


def checkpoint_files(
    folder: Path, params: CheckpointsParams
) -> dict[int, tuple[Path, ...]]:
    """Return the files of a folder's checkpoints by step, those chosen, ascending.

    A checkpoint is a file of arrays, or a folder that holds one network, with a step in
    its name; whatever has none is left aside.

    Args:
        folder: of the checkpoints.
        params: where the step stands in a name, and which steps are taken.

    Raises:
        InputError: it is no folder, no name has a step, two have the same, a step that
            is requested is not there, or a checkpoint's folder holds no network.
    """
    if not folder.is_dir():
        got = f"the file {folder.name}" if folder.is_file() else "none"
        raise InputError(
            f"expected a folder of checkpoints at {folder}, got {got}. Paths are "
            "relative to the study file's folder; weights.import takes a file."
        )
    entries = [path for path in _entries(folder) if path.is_dir() or _is_network(path)]
    by_step: dict[int, Path] = {}
    _check_counts(entries, params.step)
    for path in entries:
        step = step_of(path, params.step)
        if step is None:
            continue
        if step > MOST:
            raise InputError(
                f"expected steps below 2^63, got that of {path.name}. Remove it, or "
                "say by `step` where the step stands."
            )
        if step in by_step:
            raise InputError(
                f"expected one checkpoint of step {step}, got {by_step[step].name} and "
                f"{path.name}. Remove one, or say by `step` where the step stands."
            )
        by_step[step] = path
    if not by_step:
        raise InputError(_no_step(folder, entries, params.step))
    return {
        step: network_files(by_step[step])
        if by_step[step].is_dir()
        else (by_step[step],)
        for step in _chosen(sorted(by_step), params)
    }


def _no_step(folder: Path, entries: Sequence[Path], pattern: str | None) -> str:
    """Return the message that refuses a folder in which no checkpoint has a step."""
    rule = f"that matches '{pattern}'" if pattern else "as in step_100.pt"
    got = _listed([path.name for path in entries])
    remedy = r"Give `step`, such as net-(\d+)."
    if not got:
        names = [path.name for path in _entries(folder)]
        got = f"{_listed(names) or 'nothing'} without one"
        remedy = f"Checkpoints end in {', '.join(ARRAY_FILES)}; rename those that are."
    return (
        f"expected checkpoints with a step in their names, {rule}, in {folder.name}, "
        f"got {got}. {remedy}"
    )


def _check_counts(entries: Sequence[Path], pattern: str | None) -> None:
    """Refuse names of which some count epochs, and others steps.

    Raises:
        InputError: they do; one of each is named.
    """
    first: dict[bool, str] = {}
    for path in entries if pattern is None else ():
        if (match := _match_of(path)) is not None:
            first.setdefault(match.re is STEP_PATTERNS[-1], path.name)
    if len(first) == 2:
        raise InputError(
            f"expected names that all count steps, or all epochs, got {first[False]} "
            f"and {first[True]}. Remove some, or say by `step` where the step stands."
        )


def step_of(path: Path, pattern: str | None) -> int | None:
    """Return the step in the name of a checkpoint, None if there is none.

    Args:
        path: of a file or a folder.
        pattern: regular expression whose group is the step; None takes the number
            behind a word such as `step`, or a name that is a number.
    """
    if pattern is not None:
        match = re.search(pattern, path.name)
        is_number = match is not None and match[1] is not None and match[1].isdecimal()
        return int(match[1]) if match and is_number else None
    first = _match_of(path)
    return int(first[1]) if first else None


def _match_of(path: Path) -> re.Match[str] | None:
    name = path.name if path.is_dir() else path.stem
    matches = [match for word in STEP_PATTERNS if (match := word.search(name))]
    return matches[0] if matches else NUMBER.fullmatch(name)


def _chosen(there: Sequence[int], params: CheckpointsParams) -> list[int]:
    if params.steps is not None:
        for step in params.steps:
            if step not in there:
                raise InputError(
                    f"expected steps among {_listed(there)}, got {step}. Only these "
                    "have a checkpoint."
                )
        return sorted(set(params.steps))
    if params.every is None:
        return list(there)
    chosen = [step for step in there if step % params.every == 0]
    if not chosen:
        raise InputError(
            f"expected a step to some of {_listed(there)}, got every {params.every}. "
            "Only these have a checkpoint."
        )
    return chosen


def _entries(folder: Path) -> list[Path]:
    return sorted(path for path in folder.iterdir() if not path.name.startswith("."))


def _is_network(path: Path) -> bool:
    return path.suffix in ARRAY_FILES and not BESIDE.fullmatch(path.stem)


def _listed(values: Sequence[object]) -> str:
    texts = [str(value) for value in values]
    if len(texts) > FEW:
        texts = [*texts[: FEW - 2], "...", texts[-1]]
    return ", ".join(texts)


def joint_digest(digests: Mapping[str, str]) -> str:
    """Return the digest of a network's files, of a single one that of its content.

    Args:
        digests: SHA-256 of each file by its name, which distinguishes several.
    """
    return sha256(dict(digests)) if len(digests) > 1 else next(iter(digests.values()))


def files_digest(files: Sequence[Path]) -> str:
    """Return the digest of a network's files.

    Raises:
        OSError: a file cannot be read.
    """
    return joint_digest({path.name: file_content_digest(path) for path in files})
