"""Tokens of a text: characters or words numbered, parts and documents, windows."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any

import numpy as np

from curvflow.errors import InputError, nearest_of_many
from curvflow.schemas.nodes import Array

# Runs of letters, digits and underscores, and each mark of punctuation.
WORD = re.compile(r"\w+|[^\w\s]")
# One more than the last code point of Unicode.
CODE_POINTS = 0x110000
# A file with larger numbers is no tokenizer's.
MOST_TOKENS = 1 << 24
# What files begin with that hold text, or a table, in another form, and what to do.
OTHER_FORMS = {
    b"\x1f\x8b": ("a gzip file", "Unpack it."),
    b"PK\x03\x04": ("a zip archive, as .xlsx is", "Unpack or export it."),
    b"\x28\xb5\x2f\xfd": ("a zstd file", "Unpack it."),
    b"\xff\xfe": ("UTF-16", "Write the file in UTF-8."),
    b"\xfe\xff": ("UTF-16", "Write the file in UTF-8."),
}
NO_TOKENIZER = (
    "{}: expected a tokenizer.json of the package tokenizers, got a file that is none. "
    "Write it by Tokenizer.save."
)


@dataclass(frozen=True)
class Tokens:
    """The tokens of both parts of a text.

    Attributes:
        train: numbers of the training part in their order, (L,).
        test: those of the test part.
        vocabulary: text of each number; "" of one that no token has.
    """

    train: Array
    test: Array
    vocabulary: Sequence[str]


def text_of(content: Array, field: str) -> str:
    """Return the text of a file, each end of a line as one character.

    Args:
        content: the bytes.
        field: for messages.

    Raises:
        InputError: they are no text in UTF-8.
    """
    raw = content.tobytes()
    for start, (form, hint) in OTHER_FORMS.items():
        if raw.startswith(start):
            raise InputError(f"{field}: expected text in UTF-8, got {form}. {hint}")
    try:
        text = raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise InputError(
            f"{field}: expected text in UTF-8, got the byte {raw[error.start]:#04x} at "
            f"{error.start}. Write the file in UTF-8."
        ) from error
    if (at := text.find("\0")) >= 0:
        raise InputError(
            f"{field}: expected text, got a null character at {at}. Take a file of "
            "plain text."
        )
    return text.replace("\r\n", "\n").replace("\r", "\n")


def parted(lengths: Sequence[int], test_fraction: float, *, whole: bool) -> int:
    """Return where the test part of a text begins.

    Args:
        lengths: tokens of each document.
        test_fraction: share of the tokens held out, those at the end.
        whole: the test part begins where a document does, nearest to the place that
            the share requests; of two as near, the earlier.

    Returns:
        Number of tokens in the training part.
    """
    total = sum(lengths)
    train = total - round(test_fraction * total)
    starts = np.cumsum(lengths)[:-1]
    if not whole or train == total or not len(starts):
        return train
    return int(starts[np.argmin(abs(starts - train))])


def words(documents: Sequence[str]) -> tuple[list[Array], list[str]]:
    """Number words and marks of punctuation by their order among those that occur.

    Args:
        documents: texts.

    Returns:
        The numbers of each document's words, and the words, sorted.
    """
    pieces = [WORD.findall(document) for document in documents]
    names = sorted(set(chain.from_iterable(pieces)))
    number = {name: n for n, name in enumerate(names)}
    codes = [
        np.fromiter((number[piece] for piece in document), np.int64, len(document))
        for document in pieces
    ]
    return codes, names


def characters(documents: Sequence[str]) -> tuple[list[Array], list[str]]:
    """Number characters by their order among those that occur.

    Args:
        documents: texts.

    Returns:
        The numbers of each document's characters, and the characters, sorted.
    """
    points = [np.frombuffer(d.encode("utf-32-le"), "<u4") for d in documents]
    occurs = np.zeros(CODE_POINTS, dtype=bool)
    for document in points:
        occurs[document] = True
    places = np.cumsum(occurs) - 1
    names = [chr(point) for point in np.flatnonzero(occurs)]
    return [places[document].astype(np.int64) for document in points], names


def most_frequent(counts: Array, most: int | None) -> Array:
    """Return which codes occur, at most so many of the most frequent, in their order.

    Args:
        counts: how often each code occurs; of equal ones the smaller code is first.
        most: so many at most; None for all.
    """
    occurring = np.flatnonzero(counts)
    order = np.argsort(-counts[occurring], kind="stable")
    return np.sort(occurring[order[:most]])


def vocabulary_of(content: Array, field: str) -> list[str]:
    """Return the text of each number of a tokenizer, "" where none has it.

    Args:
        content: the bytes of a `tokenizer.json`.
        field: for messages.

    Raises:
        InputError: they are no such file, or of a tokenizer that draws tokens.
    """
    document = _document(content, field)
    by_number = _by_number(document, field)
    size = max(by_number, default=0) + 1
    if not by_number or min(by_number) < 0 or size > MOST_TOKENS:
        raise InputError(NO_TOKENIZER.format(field))
    return [by_number.get(number, "") for number in range(size)]


def _document(content: Array, field: str) -> Mapping[str, Any]:
    try:
        document: Mapping[str, Any] = json.loads(text_of(content, field))
        dropout = document["model"].get("dropout")
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        raise InputError(NO_TOKENIZER.format(field)) from error
    # It would leave out merges at random, from no seed: other data with each run.
    if isinstance(dropout, float) and 0 < dropout < 1:
        raise InputError(
            f"{field}: expected a tokenizer that finds the same tokens in each run, "
            f"got one with dropout {dropout}. Set dropout of its model to null."
        )
    return document


def _by_number(document: Mapping[str, Any], field: str) -> dict[int, str]:
    try:
        return {int(number): str(token) for token, number in _numbers(document)}
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise InputError(NO_TOKENIZER.format(field)) from error


def _numbers(document: Mapping[str, Any]) -> Iterator[tuple[str, int]]:
    vocabulary = document["model"]["vocab"]
    if isinstance(vocabulary, list):  # of a Unigram model, each with its score
        vocabulary = {token: n for n, (token, _) in enumerate(vocabulary)}
    yield from vocabulary.items()
    for token in document.get("added_tokens") or ():
        yield token["content"], token["id"]


def number_of(token: str, vocabulary: Sequence[str]) -> int:
    """Return the number of a tokenizer's token that stands behind each document.

    Args:
        token: its text.
        vocabulary: text of each number.

    Raises:
        InputError: the tokenizer has no such token.
    """
    if token not in vocabulary:
        raise InputError(
            f"end_token: expected a token of the tokenizer, got '{token}'. "
            f"{nearest_of_many(token, vocabulary)}"
        )
    return vocabulary.index(token)


def num_windows(tokens: int, length: int, stride: int) -> int:
    """Return how many windows, with the token behind each, a row of tokens has."""
    return max(0, (tokens - 1 - length) // stride + 1)


def windows(tokens: Array, length: int, stride: int) -> tuple[Array, Array]:
    """Cut tokens into windows, each with the tokens that follow.

    Args:
        tokens: (L,).
        length: tokens of a window, T.
        stride: from the beginning of a window to that of the next.

    Returns:
        Windows (N, T), and the same one token later; what does not fill a window at
        the end is left out.
    """
    starts = stride * np.arange(num_windows(len(tokens), length, stride))
    places = starts[:, np.newaxis] + np.arange(length)
    return tokens[places], tokens[places + 1]
