"""The objects of an S3 bucket below one prefix, and a commit log made of them.

Credentials, endpoint and region come from the environment alone. A refusal is told by
its code: the text around it may name keys and addresses, and is passed on nowhere.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, TypeVar
from uuid import uuid4

from curvflow.errors import RequestError, StoreError

# Requests at once: an answer from afar takes tens of milliseconds, most of it waiting.
MAX_REQUESTS = 16
PAGE = 1000  # objects per answer to a listing
TIMEOUT, CONNECT_TIMEOUT = timedelta(minutes=5), timedelta(seconds=5)
RETRIES, RETRY_TIMEOUT = 4, timedelta(minutes=1)
NONCE = "nonce"
T = TypeVar("T")
CODE = re.compile(r"<Code>(\w+)</Code>")
STATUS = re.compile(r"status code: (\d{3})")
FORBIDDEN = {"401", "403"}

# Without keys the client asks the machine it runs on, which few machines can answer.
UNSIGNED = ("/latest/api/token", "/latest/meta-data", "redentials")
CREDENTIALS = "AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY"


@dataclass(frozen=True, slots=True)
class ObjectInfo:
    """An object, as a listing tells it.

    Attributes:
        path: below the prefix.
        bytes: its size.
        time: when it was written, by the server's clock, in seconds.
    """

    path: str
    bytes: int
    time: float


class Bucket:
    """Objects by path; safe among threads."""

    def __init__(self, name: str, prefix: str) -> None:
        """Bind to a bucket; nothing is asked of the server yet.

        Args:
            name: of the bucket.
            prefix: before all paths; may be empty.

        Raises:
            RequestError: obstore is not installed, or the environment says what it
                cannot use.
        """
        self.location = f"s3://{name}/{prefix}".rstrip("/")
        try:
            import obstore  # an extra, and only for such an address
            from obstore.store import S3Store
        except ImportError as error:
            raise RequestError(
                f"{self.location}: expected the library obstore, got none. "
                "Run `pip install 'curvflow[s3]'`."
            ) from error
        endpoint = os.environ.get("AWS_ENDPOINT_URL", "")
        self._call = obstore
        with explained(self.location):
            self._store = S3Store(
                name,
                prefix=prefix or None,
                client_options={
                    "timeout": TIMEOUT,
                    "connect_timeout": CONNECT_TIMEOUT,
                    # A plain address is one that somebody has set on purpose.
                    "allow_http": endpoint.startswith("http://"),
                },
                retry_config={"max_retries": RETRIES, "retry_timeout": RETRY_TIMEOUT},
            )

    def get(self, path: str) -> bytes | None:
        """Return an object's content; None if there is no such object."""
        return self._found(lambda: bytes(self._call.get(self._store, path).bytes()))

    def get_all(self, paths: Sequence[str]) -> list[bytes | None]:
        """Return the contents of several objects, asked for at once."""
        with ThreadPoolExecutor(MAX_REQUESTS) as threads:
            return list(threads.map(self.get, paths))

    def head(self, path: str) -> ObjectInfo | None:
        """Return size and time of an object; None if there is none."""
        return self._found(lambda: _object_info(self._call.head(self._store, path)))

    def put(self, path: str, data: bytes) -> None:
        """Write an object, in place of one of that name."""
        with explained(self.location):
            self._call.put(self._store, path, data)

    def create(self, path: str, data: bytes, *, nonce: str = "") -> bool:
        """Write an object unless there is one of that name.

        Args:
            path: its name.
            data: its content.
            nonce: written beside the content.

        Returns:
            Whether it was written by this request.

        Raises:
            StoreError: the server refused, or gave no answer.
        """
        from obstore.exceptions import AlreadyExistsError

        with explained(self.location):
            try:
                self._call.put(
                    self._store,
                    path,
                    data,
                    mode="create",
                    use_multipart=False,  # several parts know no condition
                    attributes={NONCE: nonce} if nonce else None,
                )
            except AlreadyExistsError:
                return False
        return True

    def nonce(self, path: str) -> str | None:
        """Return what `create` wrote beside an object; None if there is none."""
        return self._found(
            lambda: self._call.get(self._store, path).attributes.get(NONCE)
        )

    def list(
        self, folder: str = "", *, after: str | None = None
    ) -> Iterator[ObjectInfo]:
        """List the objects below a folder in the order of their paths.

        Args:
            folder: all of its levels are listed; the whole prefix by default.
            after: path after which the listing begins.

        Yields:
            What is there.
        """
        pages = self._call.list(
            self._store, folder or None, offset=after, chunk_size=PAGE
        )
        with explained(self.location):
            for page in pages:
                yield from (_object_info(one) for one in page)

    def list_all(self, folders: Sequence[str]) -> Iterator[ObjectInfo]:
        """List the objects below several folders, asked for at once."""
        with ThreadPoolExecutor(MAX_REQUESTS) as threads:
            for found in threads.map(lambda one: [*self.list(one)], folders):
                yield from found

    def remove(self, paths: Iterable[str]) -> None:
        """Remove what is there of these."""
        if found := list(paths):
            with explained(self.location):
                self._call.delete(self._store, found)

    def move(self, source: str, target: str) -> bool:
        """Copy an object and remove it; False if it is not there."""

        def moved() -> bool:
            self._call.rename(self._store, source, target)
            return True

        return self._found(moved) is not None

    def _found(self, ask: Callable[[], T]) -> T | None:
        """Return an answer; None for a missing object, but not for a missing bucket."""
        with explained(self.location):
            try:
                return ask()
            except FileNotFoundError as error:
                if _code(error) == "NoSuchBucket":
                    raise
                return None


def _object_info(found: Mapping[str, Any]) -> ObjectInfo:
    return ObjectInfo(found["path"], found["size"], found["last_modified"].timestamp())


@contextmanager
def explained(location: str) -> Iterator[None]:
    """Turn what a server refuses, or leaves unanswered, into one line with a remedy.

    Args:
        location: of the store.

    Yields:
        Nothing.

    Raises:
        StoreError: a request within failed.
    """
    from obstore.exceptions import BaseError

    try:
        yield
    except (BaseError, OSError, ValueError) as error:
        got, remedy = _reason(error)
        # Cut off from its cause, whose text may hold what must not be printed.
        raise StoreError(
            f"{location}: expected a bucket that can be read and written, got {got}. "
            f"{remedy}"
        ) from None


def _reason(error: Exception) -> tuple[str, str]:
    text, code, status = str(error), _code(error), STATUS.search(str(error))
    if code == "NoSuchBucket":
        return "no bucket of that name", (
            "Make it, or check the name and AWS_ENDPOINT_URL."
        )
    if any(sign in text for sign in UNSIGNED):
        return "no credentials", f"Set {CREDENTIALS}."
    if status is None:
        return "no answer", "Check AWS_ENDPOINT_URL, AWS_REGION and the network."
    got = code or f"status {status[1]}"
    if status[1] in FORBIDDEN:
        return got, f"Check {CREDENTIALS}, and the rights on the bucket."
    return got, "Run it again later; what has been committed stays."


def _code(error: Exception) -> str:
    found = CODE.search(str(error))
    return found[1] if found else ""


# Entries fetched ahead, so that a long log is not read one answer after the other.
PREFETCHED = 64


class ObjectCommits:
    """Entries as objects, `0000000001.json` and so on, by conditional put."""

    def __init__(
        self, bucket: Bucket, folder: str, *, prepare: Callable[[], None]
    ) -> None:
        """Bind the log to its folder.

        Args:
            bucket: where it is.
            folder: of the entries.
            prepare: makes the store, if need be.
        """
        self._bucket, self._folder, self._prepare = bucket, folder, prepare
        self._listed: list[int] = []
        self._prefetched: dict[int, bytes | None] = {}

    def after(self, number: int) -> list[int]:
        """Return the numbers above `number` that are taken, ascending."""
        names = (
            one.path.rpartition("/")[2]
            for one in self._bucket.list(self._folder, after=self._path(number))
        )
        self._listed = sorted(
            int(name[:-5])
            for name in names
            if name.endswith(".json") and name[:-5].isdigit()
        )
        self._prefetched.clear()
        return list(self._listed)

    def read(self, number: int) -> bytes | None:
        """Return one entry; those listed after it are fetched along with it.

        Args:
            number: its number.

        Returns:
            The entry; None if it is not there.

        Raises:
            StoreError: the server does not answer.
        """
        if number not in self._prefetched:
            later = [one for one in self._listed if one > number]
            wanted = [number, *later[: PREFETCHED - 1]]
            found = self._bucket.get_all([self._path(one) for one in wanted])
            self._prefetched = dict(zip(wanted, found, strict=True))
        return self._prefetched.pop(number)

    def time(self, number: int) -> float:
        """Return when an entry was written, by the server's clock."""
        found = self._bucket.head(self._path(number))
        return found.time if found else 0.0

    def create(self, number: int, data: bytes) -> bool:
        """Create an entry durably.

        A request whose answer was lost is sent again by the client, and is then told
        that the number is taken: by us. Only the nonce tells; two runs may well begin
        with entries that are equal.

        Args:
            number: its number; that before it must be taken.
            data: all of it.

        Returns:
            Whether the number is ours; else another has taken it.

        Raises:
            StoreError: the server refused, or does not answer.
        """
        self._prepare()
        path, nonce = self._path(number), uuid4().hex
        try:
            ours = self._bucket.create(path, data, nonce=nonce)
        except StoreError:
            with suppress(StoreError):
                if found := self._bucket.nonce(path):
                    return found == nonce
            raise
        return ours or self._bucket.nonce(path) == nonce

    def replace(self, number: int, data: bytes) -> None:
        """Put an entry in place of one that is torn or lost, durably."""
        self._prepare()
        self._bucket.put(self._path(number), data)

    def remove(self, numbers: Sequence[int]) -> None:
        """Remove entries."""
        self._bucket.remove(self._path(number) for number in numbers)

    def _path(self, number: int) -> str:
        return f"{self._folder}/{number:010}.json"
