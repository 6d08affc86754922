"""Windows of a text's tokens."""

from __future__ import annotations

from typing import cast

import numpy as np

from curvflow.errors import InputError
from curvflow.schemas.kind import Files
from curvflow.schemas.kinds.data.text import (
    TextParams,
    check_length,
    documents,
    num_classes_of,
    numbered,
)
from curvflow.schemas.kinds.shared.datasets import dataset_of
from curvflow.schemas.kinds.shared.texts import (
    Tokens,
    number_of,
    parted,
    vocabulary_of,
    windows,
)
from curvflow.schemas.nodes import Member, Outcome
from curvflow.tasks.registry import Machine, computes_each


@computes_each("data.text")
def text(member: Member, machine: Machine) -> Outcome:
    """Number the tokens of a text and cut it into windows.

    Args:
        member: the parameters, and the bytes of the text and of the tokenizer.
        machine: not used.

    Returns:
        The data set, tokens (N, T) and the next of each as labels (N, T), and the
        vocabulary (V,), whose size is the number of classes unless one is given.

    Raises:
        InputError: the text is none or too short, has more tokens than classes, or the
            tokenizer cannot be used.
    """
    params = cast("TextParams", member.params)
    if params.unit == "tokenizer":
        tokens = _encoded(params, member.files)
    else:
        tokens = numbered(params, member.files)
    check_length(params, tokens)
    classes = num_classes_of(params, tokens.vocabulary)
    train, test = (
        windows(part, params.length, params.step)
        for part in (tokens.train, tokens.test)
    )
    arrays = dataset_of(np.float64, classes, *train, *test)
    arrays["vocabulary"] = np.array(list(tokens.vocabulary))
    return Outcome(arrays)


def _encoded(params: TextParams, files: Files) -> Tokens:
    """Return the tokens that a tokenizer finds in each document by itself."""
    try:
        from tokenizers import Tokenizer  # an extra
    except ImportError as error:
        raise InputError(
            "unit: expected the package tokenizers installed, got none. Run pip "
            "install tokenizers, or take unit: words."
        ) from error
    content = files["tokenizer"]["bytes"]
    vocabulary = vocabulary_of(content, "tokenizer")
    parts = documents(params, files)
    try:
        tokenizer = Tokenizer.from_str(content.tobytes().decode("utf-8-sig"))
        tokenizer.no_truncation()
        tokenizer.no_padding()
        encodings = tokenizer.encode_batch(parts, add_special_tokens=False)
    except Exception as error:  # the package raises no class of its own
        raise InputError(
            f"tokenizer: expected a file that the package tokenizers can use, got "
            f"'{error}'. Write it by Tokenizer.save."
        ) from error
    each = [np.array(encoding.ids, dtype=np.int64) for encoding in encodings]
    if params.is_packed:
        end = number_of(params.end_token, vocabulary)
        each = [np.append(ids, end) for ids in each]
    lengths = [len(ids) for ids in each]
    cut = parted(lengths, params.test_fraction, whole=params.is_packed)
    ids = np.concatenate([np.zeros(0, np.int64), *each])
    return Tokens(ids[:cut], ids[cut:], vocabulary)
