"""From an address to a store."""

from __future__ import annotations

from pathlib import Path

from curvflow.errors import RequestError
from curvflow.stores.local import LocalStore
from curvflow.stores.logged import LoggedStore
from curvflow.stores.memory import MemoryStore


def open_store(url: str | Path, *, create: bool) -> LoggedStore:
    """Open the store at an address.

    Args:
        url: a folder's path, or `memory:` for a store that ends with the process.
        create: make the folder if it is missing; else it reads as an empty store until
            something is written.

    Returns:
        The store.

    Raises:
        RequestError: the address is of a kind that is not supported.
        StoreFormatError: the folder holds something else, or a newer format.
        StoreError: the folder cannot be read or made.
    """
    if url == "memory:":
        return MemoryStore()
    if isinstance(url, str) and "://" in url:
        raise RequestError(
            f"store: expected a folder's path or 'memory:', got '{url}'. "
            "Other kinds of stores are not supported."
        )
    store = LocalStore(Path(url).expanduser())
    if create:
        store.make()
    return store
