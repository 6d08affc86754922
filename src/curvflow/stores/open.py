"""Opening of a store by its address: a folder, `s3://bucket/prefix` or `memory:`."""

from __future__ import annotations

import os
import re
from pathlib import Path

from curvflow.errors import RequestError
from curvflow.stores.local import LocalStore
from curvflow.stores.log_store import LogStore
from curvflow.stores.memory import MemoryStore

BUCKET = re.compile(r"[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]")
# What every server and every tool takes without escaping it.
PREFIX = re.compile(r"([\w!.*'()-]+(/[\w!.*'()-]+)*)?", re.ASCII)


def open_store(url: str | Path, *, create: bool) -> LogStore:
    """Open the store at an address; without `create` a missing one reads as empty."""
    if not isinstance(url, str | os.PathLike):
        raise RequestError(
            f"store: expected a folder's path, 's3://bucket/prefix' or 'memory:', got "
            f"{type(url).__name__}. Pass text or a path."
        )
    if url == "memory:":
        return MemoryStore()
    if isinstance(url, str) and "://" in url:
        bucket, prefix = _bucket_and_prefix(url)
        return _object_store(bucket, prefix, create=create)
    store = LocalStore(_folder(url))
    if create:
        store.make()
    return store


def _object_store(bucket: str, prefix: str, *, create: bool) -> LogStore:
    from curvflow.stores.bucket import Bucket  # only such addresses need what it needs
    from curvflow.stores.objects import ObjectStore

    store = ObjectStore(Bucket(bucket, prefix))
    if create:
        store.make()
    return store


def _bucket_and_prefix(url: str) -> tuple[str, str]:
    """Split `s3://bucket/prefix`; messages must not show a possible password."""
    scheme, _, rest = url.partition("://")
    place, _, prefix = rest.partition("/")
    if "@" in rest:
        raise RequestError(
            f"store: expected an address without user and password, got {scheme}://"
            "...@... Set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY instead."
        )
    if scheme != "s3":
        raise RequestError(
            f"store: expected a folder's path, 's3://bucket/prefix' or 'memory:', got "
            f"'{_plain(scheme)}://...'. Other kinds of stores are not supported."
        )
    prefix = prefix.removesuffix("/")
    if not BUCKET.fullmatch(place) or not PREFIX.fullmatch(prefix):
        raise RequestError(
            f"store: expected 's3://bucket/prefix', got '{_plain(url)}'. Use letters, "
            "digits and ._-!*'() between the slashes, and nothing after them."
        )
    if {".", ".."} & set(prefix.split("/")):
        raise RequestError(
            f"store: expected a prefix without '.' and '..', got '{_plain(url)}'. "
            "Write it out."
        )
    return place, prefix


def _plain(text: str) -> str:
    """Return the text without queries, which may hold a signature, on one line."""
    short = re.split(r"[?#]", text)[0][:80]
    return "".join(c if c.isprintable() else "?" for c in short)


def _folder(path: str | Path) -> Path:
    if "\0" in str(path):
        raise RequestError(
            "store: expected a folder's path, got one with a zero byte. Remove it."
        )
    return Path(path).expanduser()
