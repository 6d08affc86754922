"""Declaration of `data.text`, and the check of its files while planning."""

from __future__ import annotations

from collections.abc import Sequence
from importlib.util import find_spec
from typing import Annotated, Literal

import numpy as np
from pydantic import Field, model_validator

from curvflow.errors import InputError
from curvflow.schemas.explanations import Explanation
from curvflow.schemas.kind import Files, Kind, Samples, Variable
from curvflow.schemas.kinds.shared.datasets import OUTPUTS
from curvflow.schemas.kinds.shared.texts import (
    Tokens,
    characters,
    most_frequent,
    num_windows,
    number_of,
    parted,
    text_of,
    vocabulary_of,
    words,
)
from curvflow.schemas.nodes import Data
from curvflow.schemas.params import Neutral, Params, SourceFile

EMPTY_LINE = "\n\n"


class TextParams(Params):
    """A text, what its tokens are, and how it is cut into samples."""

    path: Annotated[str, SourceFile(raw=True)] = Field(
        description="file of the text, in UTF-8"
    )
    unit: Literal["characters", "words", "tokenizer"] = Field(
        "characters",
        description="tokens: characters; words and marks of punctuation; or those of "
        "a tokenizer",
    )
    tokenizer: Annotated[str | None, SourceFile(raw=True)] = Field(
        None, description="tokenizer.json of the package tokenizers"
    )
    length: int = Field(64, ge=2, description="tokens of a sample, T")
    windows: Literal["contiguous", "packed"] = Field(
        "contiguous",
        description="contiguous cuts the text as it is; packed puts end_token behind "
        "each of its documents, and cuts these in a row",
    )
    stride: int | None = Field(
        None,
        ge=1,
        description="tokens from the beginning of a window to that of the next; null "
        "is length, so that they do not overlap",
    )
    separator: str | None = Field(
        None,
        min_length=1,
        description="text between documents, if packed; null is an empty line",
    )
    end_token: str = Field(
        "<end>", min_length=2, description="token behind each document, if packed"
    )
    lowercase: bool = Field(False, description="take letters as small ones")
    vocabulary: Literal["whole", "training"] = Field(
        "whole",
        description="part whose characters or words are numbered; with training, the "
        "others are the unknown token",
    )
    max_tokens: int | None = Field(
        None,
        ge=1,
        description="most frequent characters or words that are numbered, the others "
        "are the unknown token; null numbers all",
    )
    unknown_token: str = Field("<unk>", min_length=2, description="its name")
    test_fraction: float = Field(
        0.1, ge=0, lt=1, description="share of the tokens held out, those at the end"
    )

    num_classes: Annotated[int | None, Neutral(None)] = Field(
        None,
        ge=2,
        description="classes that a network has outputs of, such as a round number "
        "above that of the tokens; null takes one for each token",
    )

    @model_validator(mode="after")
    def _settings_of_the_unit(self) -> TextParams:
        if (self.unit == "tokenizer") != (self.tokenizer is not None):
            given, hint = self.tokenizer, "Set unit: tokenizer, or remove tokenizer."
            if given is None:
                given, hint = "null", "Name a tokenizer, or take another unit."
            raise ValueError(
                f"tokenizer {given} cannot be combined with unit: {self.unit}. {hint}"
            )
        if self.unit == "tokenizer":
            for name in ("lowercase", "vocabulary", "max_tokens"):
                field = type(self).model_fields[name]
                if getattr(self, name) != field.default:
                    raise ValueError(
                        f"{name} cannot be combined with unit: tokenizer, whose file "
                        f"has its own tokens. Remove {name}."
                    )
        if self.unknown_token == self.end_token:
            raise ValueError(
                "expected an end_token other than unknown_token, got "
                f"{self.end_token}. Rename one of them."
            )
        return self

    @property
    def step(self) -> int:
        """Tokens from the beginning of a window to that of the next."""
        return self.length if self.stride is None else self.stride

    @property
    def is_packed(self) -> bool:
        """True if each document has a token behind it."""
        return self.windows == "packed"

    @property
    def has_unknown(self) -> bool:
        """True if some tokens may have no number."""
        return self.vocabulary == "training" or self.max_tokens is not None


def documents(params: TextParams, files: Files) -> list[str]:
    """Return the parts of the text that have a token behind them, or all as one.

    Args:
        params: the separator, and the case of letters.
        files: the bytes of the text, under `path`.

    Raises:
        InputError: the file is no text.
    """
    text = text_of(files["path"]["bytes"], "path")
    text = text.lower() if params.lowercase else text
    if not params.is_packed:
        return [text]
    between = EMPTY_LINE if params.separator is None else params.separator
    return [part for part in text.split(between) if part.strip()]


def numbered(params: TextParams, files: Files) -> Tokens:
    """Number the characters or words of the text.

    Args:
        params: how they are numbered and parted.
        files: the bytes of the text, under `path`.

    Returns:
        Tokens 0, 1, ... in the order of their code points, then that of unknown ones
        and that of ends, where there are such.

    Raises:
        InputError: the file is no text, or has a token called as one of these.
    """
    parts = documents(params, files)
    each, names = words(parts) if params.unit == "words" else characters(parts)
    special = [params.unknown_token] if params.has_unknown else []
    special += [params.end_token] if params.is_packed else []
    for token in special:
        if token in names:
            raise InputError(
                f"path: expected a text without '{token}', which stands for unknown "
                "tokens or ends of documents, got one with it. Change unknown_token "
                "or end_token."
            )
    end = len(names)
    if params.is_packed:
        each = [np.append(codes, end) for codes in each]
    codes = np.concatenate([np.zeros(0, np.int64), *each])
    cut = parted([len(d) for d in each], params.test_fraction, whole=params.is_packed)
    counted = codes if params.vocabulary == "whole" else codes[:cut]
    kept = most_frequent(np.bincount(counted, minlength=end)[:end], params.max_tokens)
    numbers = np.full(end + 1, len(kept))  # the unknown token, but of those kept
    numbers[kept] = np.arange(len(kept))
    numbers[end] = len(kept) + len(special) - 1
    vocabulary = [*(names[code] for code in kept), *special]
    return Tokens(numbers[codes[:cut]], numbers[codes[cut:]], vocabulary)


def check_length(params: TextParams, tokens: Tokens) -> None:
    """Refuse a text that is too short for its windows.

    Args:
        params: length and stride of windows, and the share held out.
        tokens: of both parts.

    Raises:
        InputError: fewer than two windows are left for training, or none for testing.
    """
    parts = {"training": (tokens.train, 2), "test": (tokens.test, 1)}
    for name, (part, least) in parts.items():
        if name == "test" and not params.test_fraction:
            continue
        count = num_windows(len(part), params.length, params.step)
        if count < least:
            raise InputError(
                f"length: expected at least {least} window{'s' * (least > 1)} of "
                f"{params.length} tokens and the token behind in the {name} part, got "
                f"{count} in its {len(part)} tokens. Lower length or stride, or change "
                "test_fraction."
            )


def num_classes_of(params: TextParams, vocabulary: Sequence[str]) -> int:
    """Return the number of classes of the targets.

    Args:
        params: the number, if one is given.
        vocabulary: the tokens.

    Raises:
        InputError: there are more tokens.
    """
    given = params.num_classes
    if given is not None and given < len(vocabulary):
        raise InputError(
            f"num_classes: expected at least {len(vocabulary)}, one for each token, "
            f"got {given}. Raise it, or remove it."
        )
    return len(vocabulary) if given is None else given


def check(params: TextParams, files: Files) -> None:
    """Refuse files that are no text or tokenizer, and texts too short.

    Args:
        params: what the tokens are.
        files: the bytes of the text and of the tokenizer, by path field.

    Raises:
        InputError: the text is none or too short, or has more tokens than classes; the
            tokenizer is none, lacks a token or needs a package that is not installed.
    """
    if params.unit != "tokenizer":
        tokens = numbered(params, files)
        check_length(params, tokens)
        num_classes_of(params, tokens.vocabulary)
        return
    vocabulary = vocabulary_of(files["tokenizer"]["bytes"], "tokenizer")
    num_classes_of(params, vocabulary)
    if params.is_packed:
        number_of(params.end_token, vocabulary)
    if find_spec("tokenizers") is None:
        raise InputError(
            "unit: expected the package tokenizers installed, got none. Run pip "
            "install tokenizers, or take unit: words."
        )
    if not documents(params, files):
        raise InputError("path: expected text, got none. Take a file with text.")


def samples_in_files(params: TextParams, files: Files) -> Samples:
    """Return the form of the samples: T tokens, and the next one of each.

    Args:
        params: what the tokens are.
        files: the bytes of the text and of the tokenizer, by path field.
    """
    if params.unit == "tokenizer":
        vocabulary = vocabulary_of(files["tokenizer"]["bytes"], "tokenizer")
    else:
        vocabulary = list(numbered(params, files).vocabulary)
    classes, size = num_classes_of(params, vocabulary), len(vocabulary)
    return Samples((params.length,), "labels", classes, params.length, vocabulary=size)


KIND = Kind(
    name="data.text",
    version=1,
    summary="Windows of a text's characters, words or tokens, with the next of each.",
    params=TextParams,
    returns=Data,
    outputs=(
        *OUTPUTS,
        Variable(
            "vocabulary",
            "text of each token; empty of a number that no token has",
            ("token",),
            dtype="str",
            bulk=True,
        ),
    ),
    check=check,
    samples_in_files=samples_in_files,
)

EXPLANATION = Explanation(
    formula=(
        "x = (t_s, …, t_(s+T-1)), y = (t_(s+1), …, t_(s+T)), s = 0, stride, 2 stride, "
        "… in the training part, and in the last round(test_fraction · L) of L tokens"
    ),
    source="none: the text is the user's",
    cost="none: the file is read once, and by its content",
    example="""\
study: example
stages:
  letters: {use: data.text, path: story.txt, length: 16, stride: 4}
  words: {use: data.text, path: story.txt, unit: words, length: 8,
          lowercase: true, max_tokens: 20, windows: packed}
""",
    page="how-to/own-data.md#text",
    units={
        "length": "token",
        "stride": "token",
        "max_tokens": "token",
        "num_classes": "1",
    },
)
