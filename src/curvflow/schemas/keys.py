"""Canonical encoding, action keys and content digests.

`canonical` writes a value as typed, length-prefixed text, so that `1`, `1.0`, `"1"`,
`true`, `[1]` and `{"1": ...}` all differ and no concatenation is ambiguous. Floats are
written in hexadecimal; NaN, infinities and sets are refused. Nothing here depends on
pickle, `repr` or JSON, so keys are stable across processes, platforms and versions.
"""

from __future__ import annotations

import hashlib
import math
import unicodedata
from collections.abc import Callable, Mapping, Sequence
from functools import cache, lru_cache
from operator import itemgetter
from typing import Any, NamedTuple

import numpy as np
from pydantic import BaseModel

from curvflow.errors import NotEncodableError
from curvflow.schemas.disk_arrays import DiskArray
from curvflow.schemas.nodes import Array
from curvflow.schemas.params import Neutral, NotInKey, SourceFile

SCHEME = "curvflow/1"


class Encoded(bytes):
    """The canonical form of a value, to be embedded in a larger one."""


def canonical(value: object) -> bytes:
    """Return the canonical form; raise NotEncodableError for NaN, sets and others."""
    encode = _ENCODERS.get(type(value))
    return encode(value) if encode else _canonical_subclass(value)


def _canonical_subclass(value: object) -> bytes:
    for base in (str, int, float):
        if isinstance(value, base):
            return _ENCODERS[base](value)
    if isinstance(value, Mapping):
        return _canonical_mapping(value)
    if isinstance(value, Sequence) and not isinstance(value, bytes | bytearray):
        return _canonical_sequence(value)
    raise NotEncodableError(
        "expected text, numbers, lists or mappings in a key, got "
        f"{type(value).__name__} {value!r}. Convert it to one of these."
    )


def normalised(value: Any) -> Any:
    """Return plain data as a key has it: text composed, and no negative zero."""
    # What is equal in the key is so equal in the call.
    if isinstance(value, str):
        return value if value.isascii() else unicodedata.normalize("NFC", value)
    if type(value) is float:
        return value + 0.0
    if isinstance(value, dict):
        return {normalised(key): normalised(item) for key, item in value.items()}
    if isinstance(value, list):
        return [normalised(item) for item in value]
    return value


def _canonical_text(value: str) -> bytes:
    text = value if value.isascii() else unicodedata.normalize("NFC", value)
    encoded = text.encode()
    return b"s%d:%b" % (len(encoded), encoded)


def _canonical_float(value: float) -> bytes:
    if not math.isfinite(value):
        raise NotEncodableError(
            f"expected a finite number in a key, got {value}. Leave it out, or write "
            "it as text."
        )
    return b"d%b;" % (value + 0.0).hex().encode()  # + 0.0 turns -0.0 into 0.0


def _canonical_sequence(value: Sequence[object]) -> bytes:
    return b"l%d:%b" % (len(value), b"".join([canonical(item) for item in value]))


# The names of fields, parts and axes are few, and each is met at every node.
_canonical_name = lru_cache(maxsize=1 << 12)(_canonical_text)


def _canonical_mapping(value: Mapping[Any, object]) -> bytes:
    items = []
    for key, item in value.items():
        if not isinstance(key, str):
            raise NotEncodableError(
                f"expected text as a mapping's key, got {key!r}. Write it as text."
            )
        items.append(_canonical_name(key) + canonical(item))
    items.sort()
    return b"m%d:%b" % (len(items), b"".join(items))


_ENCODERS: dict[type, Callable[[Any], bytes]] = {
    type(None): lambda _: b"n",
    bool: lambda value: b"t" if value else b"f",
    int: lambda value: b"i%d;" % value,
    float: _canonical_float,
    str: _canonical_text,
    list: _canonical_sequence,
    tuple: _canonical_sequence,
    dict: _canonical_mapping,
    Encoded: lambda value: value,
}


# The form of a text of which there are few, such as a name.
name_form = _canonical_name


def sequence_form(forms: Sequence[bytes]) -> bytes:
    """Return the canonical form of a list from the forms of its items."""
    return b"l%d:%b" % (len(forms), b"".join(forms))


def mapping_form(names: tuple[str, ...], forms: Sequence[bytes]) -> bytes:
    """Return the canonical form of a mapping from its names and its values' forms."""
    template, order = _mapping_template(names)
    return template % tuple([forms[i] for i in order])


@lru_cache(maxsize=1 << 12)
def _mapping_template(names: tuple[str, ...]) -> tuple[bytes, list[int]]:
    """Return the form of a mapping without its values, and the order of these."""
    written = [_canonical_text(name).replace(b"%", b"%%") for name in names]
    order = sorted(range(len(names)), key=lambda i: _canonical_text(names[i]))
    items = b"".join([written[i] + b"%b" for i in order])
    return b"m%d:" % len(names) + items, order


def sha256(value: object) -> str:
    """Return the SHA-256 of a value's canonical form, in hexadecimal."""
    return hashlib.sha256(canonical(value)).hexdigest()


_HEX = {64}  # digits of a digest


def texts_digest(texts: Mapping[str, str], names: tuple[str, ...]) -> str:
    """Return `sha256` of those texts that have these names, soonest if all are digests.

    Raises:
        KeyError: there is none of a name.
    """
    template, pick = _digests_template(names)
    picked = pick(texts)
    written: str = template % picked
    if not ({*map(len, picked)} <= _HEX and written.isascii()):
        return sha256({name: texts[name] for name in names})
    return hashlib.sha256(written.encode()).hexdigest()


@lru_cache(maxsize=1 << 12)
def _digests_template(
    names: tuple[str, ...],
) -> tuple[str, Callable[[Mapping[str, str]], tuple[str, ...]]]:
    """Return the form of a mapping of digests without these, and what picks them."""
    ordered = sorted(set(names), key=_canonical_text)
    written = [_canonical_text(name).decode().replace("%", "%%") for name in ordered]
    items = "".join([f"{name}s64:%s" for name in written])
    return f"m{len(ordered)}:{items}", picker(ordered)


def picker(keys: Sequence[Any]) -> Callable[[Any], tuple[Any, ...]]:
    """Return the function that takes the items of some keys out of a container."""
    if len(keys) > 1:
        return itemgetter(*keys)
    return lambda items: tuple([items[key] for key in keys])


# Per field the digest of its file, or those of several by name.
FileDigests = Mapping[str, str | Mapping[str, str]]


def form(params: BaseModel, files: FileDigests | None = None) -> dict[str, object]:
    """Return the plain parameters that enter a key; source files by their digests."""
    return Forms().write(params, files)[0]


def without(form: Mapping[str, object], paths: Sequence[str]) -> dict[str, object]:
    """Return plain parameters less those under dotted paths."""
    kept = dict(form)
    for path in paths:
        head, _, rest = path.partition(".")
        inner = kept.get(head)
        if not rest:
            kept.pop(head, None)
        elif isinstance(inner, Mapping):
            kept[head] = without(inner, [rest])
    return kept


class Forms:
    """Plain and canonical forms of parameters, each value of a field written once.

    What is one object in several parameters, such as the rule of many seeds, is one
    in their plain forms as well.
    """

    def __init__(self) -> None:
        """Start with nothing written."""
        self._written: dict[type, list[tuple[_KeyField, dict[int, _Written]]]] = {}

    def write(
        self, params: BaseModel, files: FileDigests | None = None
    ) -> tuple[dict[str, object], Encoded]:
        """Return `form` of parameters, and its canonical form."""
        plain, forms = dict[str, object](), list[bytes]()
        for field, known in self._fields(type(params)):
            value = getattr(params, field.name)
            written = known.get(id(value)) or _write(field, value, files, known)
            _, item, encoded = written
            if encoded is not None:
                plain[field.name] = item
                forms.append(encoded)
        return plain, Encoded(mapping_form(tuple(plain), forms))

    def _fields(
        self, model: type[BaseModel]
    ) -> list[tuple[_KeyField, dict[int, _Written]]]:
        if model not in self._written:
            self._written[model] = [(field, {}) for field in _key_fields(model)]
        return self._written[model]


def _write(
    field: _KeyField,
    value: object,
    files: FileDigests | None,
    known: dict[int, _Written],
) -> _Written:
    """Write a field, and note it by the identity of its value."""
    item = _plain_field(field, value, files)
    # The value is kept, so that no other object gets its identity.
    written = value, item, None if item is _LEFT_OUT else canonical(item)
    if not field.is_source:  # the same path may have other content
        known[id(value)] = written
    return written


# A field's value, its plain form, and its canonical form unless it is left out.
_Written = tuple[object, object, bytes | None]

_LEFT_OUT = object()


def _plain_field(field: _KeyField, value: object, files: FileDigests | None) -> object:
    """Return the plain form of a field's value, or that the key has none."""
    written = value if type(value) in SCALARS else _plain(value)
    if field.neutral is not None and _is_neutral(written, *field.neutral):
        return _LEFT_OUT
    if field.is_source and value is not None:
        digest = (files or {})[field.name]
        return {"sha256": digest} if isinstance(digest, str) else dict(digest)
    return written


# Of these the type and `==` tell which have one canonical form, where text is ASCII.
SCALARS = frozenset({type(None), bool, int, float, str})

# A neutral value, plain and canonical.
_Neutral = tuple[object, bytes]


def _is_neutral(written: object, plain: object, encoded: bytes) -> bool:
    kind = type(plain)
    if kind in SCALARS and kind is not str:
        return type(written) is kind and written == plain
    return canonical(written) == encoded


class _KeyField(NamedTuple):
    """A field that enters keys: its name, neutral value, and whether it is a file."""

    name: str
    neutral: _Neutral | None
    is_source: bool


@cache
def _key_fields(model: type[BaseModel]) -> list[_KeyField]:
    """Return the fields of a model that enter keys."""
    fields: list[_KeyField] = []
    for name, info in model.model_fields.items():
        marks = info.metadata
        if not any(isinstance(mark, NotInKey) for mark in marks):
            neutral = [_plain(m.value) for m in marks if isinstance(m, Neutral)]
            written = (neutral[0], canonical(neutral[0])) if neutral else None
            is_source = any(isinstance(mark, SourceFile) for mark in marks)
            fields.append(_KeyField(name, written, is_source))
    return fields


def _plain(value: object) -> object:
    if type(value) in SCALARS:
        return value
    if isinstance(value, BaseModel):
        return form(value)
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    if isinstance(value, Mapping):
        return {key: _plain(item) for key, item in value.items()}
    return value


def action_key(
    kind: str, version: int, params: object, inputs: Mapping[str, object] | Encoded
) -> str:
    """Return the action key, 64 hexadecimal digits; it decides if a node is done.

    Of parameters and inputs the canonical forms do as well.
    """
    head = _action_head(kind, version)
    return hashlib.sha256(head + canonical(params) + canonical(inputs)).hexdigest()


@lru_cache(maxsize=1 << 10)
def _action_head(kind: str, version: int) -> bytes:
    """Return the form of a list of five up to the parameters, the fourth."""
    return b"l5:" + canonical(SCHEME) + canonical(kind) + canonical(version)


def array_digest(array: Array) -> str:
    """Return the SHA-256 of an array's dtype, shape and little-endian C-order bytes."""
    if isinstance(array, DiskArray):
        return _blocks_digest(array, array.shape)
    (digest,) = row_digests(np.asarray(array)[None])
    return digest


def stacked_digest(array: Array) -> str:
    """Return the `array_digest` of an array with a first dimension of size 1 added."""
    if isinstance(array, DiskArray):
        return _blocks_digest(array, (1, *array.shape))
    return array_digest(array[None])


class DigestInParts:
    """The `array_digest` of an array of numbers whose parts come one by one."""

    def __init__(self, dtype: np.dtype[Any], shape: Sequence[int]) -> None:
        """Begin with nothing of an array of this type and shape."""
        self._hasher = _empty_digest(dtype.newbyteorder("<"), shape)

    def update(self, part: Array) -> None:
        """Take the next entries, in C order."""
        self._hasher.update(_content(part))

    def hexdigest(self) -> str:
        """Return the digest of all parts."""
        return self._hasher.hexdigest()


def _blocks_digest(array: DiskArray, shape: tuple[int, ...]) -> str:
    digest = DigestInParts(array.dtype, shape)
    for block in array.blocks():
        digest.update(block)
    return digest.hexdigest()


def row_digests(array: Array) -> list[str]:
    """Return the digest of each entry along the first dimension, as `array_digest`."""
    # All NaN count as one bit pattern. Chunking, codecs and paths do not count.
    shape = array.shape[1:]
    if array.dtype.kind in "UOT":
        return [
            sha256(["text", list(shape), [str(item) for item in np.asarray(row).flat]])
            for row in array
        ]
    empty = _empty_digest(array.dtype.newbyteorder("<"), shape)
    size = array.itemsize * math.prod(shape)
    content = _content(array)
    digests = []
    for row in range(len(array)):
        hasher = empty.copy()
        hasher.update(content[row * size : (row + 1) * size])
        digests.append(hasher.hexdigest())
    return digests


def _empty_digest(dtype: np.dtype[Any], shape: Sequence[int]) -> hashlib._Hash:
    return hashlib.sha256(canonical(["array", dtype.str, list(shape)]))


def _content(array: Array) -> memoryview:
    """Return the little-endian bytes of numbers, without a copy where they are such."""
    data = np.ascontiguousarray(array, dtype=array.dtype.newbyteorder("<"))
    if data.dtype.kind == "f" and np.isnan(data).any():
        data = np.where(np.isnan(data), np.array(np.nan, data.dtype), data)
    return data.reshape(-1).view(np.uint8).data
