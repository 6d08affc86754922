"""Objects of an S3 bucket below one prefix, and a commit log made of them.

Credentials, endpoint and region come from the environment. A refusal is reported by
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
from curvflow.stores.commits import mark_name, parse_marks

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
    """Path, size and time of an object.

    Attributes:
        path: below the prefix.
        bytes: its size.
        time: when it was written, by the server's clock, in seconds.
    """

    path: str
    bytes: int
    time: float


class Bucket:
    """Client of one bucket prefix: objects by path; thread-safe."""

    def __init__(self, name: str, prefix: str) -> None:
        """Bind to a bucket, without a request; raise RequestError without obstore."""
        self.location = f"s3://{name}/{prefix}".rstrip("/")
        try:
            import obstore  # an extra, and only for such an address
            from obstore.store import S3Store
        except ImportError as error:
            raise RequestError(
                f"{self.location}: expected the library obstore, which this address "
                "needs, got none. Run `pip install obstore`."
            ) from error
        endpoint = os.environ.get("AWS_ENDPOINT_URL", "")
        self._call = obstore
        with server_errors(self.location):
            self._store = S3Store(
                name,
                prefix=prefix or None,
                client_options={
                    "timeout": TIMEOUT,
                    "connect_timeout": CONNECT_TIMEOUT,
                    # An http:// address has been set on purpose.
                    "allow_http": endpoint.startswith("http://"),
                },
                retry_config={"max_retries": RETRIES, "retry_timeout": RETRY_TIMEOUT},
            )

    def get(self, path: str) -> bytes | None:
        """Return an object's content; None if there is no such object."""
        return self._request(lambda: bytes(self._call.get(self._store, path).bytes()))

    def get_all(self, paths: Sequence[str]) -> list[bytes | None]:
        """Return the contents of several objects, requested concurrently."""
        with ThreadPoolExecutor(MAX_REQUESTS) as threads:
            return list(threads.map(self.get, paths))

    def head(self, path: str) -> ObjectInfo | None:
        """Return size and time of an object; None if there is none."""
        return self._request(lambda: _object_info(self._call.head(self._store, path)))

    def put(self, path: str, data: bytes) -> None:
        """Write an object, replacing one of that name."""
        with server_errors(self.location):
            self._call.put(self._store, path, data)

    def create(self, path: str, data: bytes, *, nonce: str = "") -> bool:
        """Write an object unless its name is taken; return whether it was written."""
        from obstore.exceptions import AlreadyExistsError

        with server_errors(self.location):
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
        """Return the nonce that `create` stored with an object, or None."""
        return self._request(
            lambda: self._call.get(self._store, path).attributes.get(NONCE)
        )

    def list(
        self, folder: str = "", *, after: str | None = None
    ) -> Iterator[ObjectInfo]:
        """Yield all objects below a folder in the order of their paths, `after` one."""
        pages = self._call.list(
            self._store, folder or None, offset=after, chunk_size=PAGE
        )
        with server_errors(self.location):
            for page in pages:
                yield from (_object_info(item) for item in page)

    def list_all(self, folders: Sequence[str]) -> Iterator[ObjectInfo]:
        """Yield the objects below several folders, requested concurrently."""
        with ThreadPoolExecutor(MAX_REQUESTS) as threads:
            for objects in threads.map(lambda folder: [*self.list(folder)], folders):
                yield from objects

    def remove(self, paths: Iterable[str]) -> None:
        """Delete objects; missing ones are skipped."""
        if present := list(paths):
            with server_errors(self.location):
                self._call.delete(self._store, present)

    def move(self, source: str, target: str) -> bool:
        """Copy an object and delete the source; False if it is missing."""

        def moved() -> bool:
            self._call.rename(self._store, source, target)
            return True

        return self._request(moved) is not None

    def _request(self, send: Callable[[], T]) -> T | None:
        """Send a request; None for a missing object, an error for a missing bucket."""
        with server_errors(self.location):
            try:
                return send()
            except FileNotFoundError as error:
                if _code(error) == "NoSuchBucket":
                    raise
                return None


def _object_info(meta: Mapping[str, Any]) -> ObjectInfo:
    return ObjectInfo(meta["path"], meta["size"], meta["last_modified"].timestamp())


@contextmanager
def server_errors(location: str) -> Iterator[None]:
    """Turn a refused or unanswered request into a one-line StoreError with a remedy."""
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
    match = CODE.search(str(error))
    return match[1] if match else ""


# Entries fetched ahead, so that a long log is not read one answer after the other.
PREFETCHED = 64


class ObjectCommits:
    """Entries as objects, `0000000001.json` and so on, by conditional put."""

    def __init__(
        self, bucket: Bucket, folder: str, *, prepare: Callable[[], None]
    ) -> None:
        """Bind to the folder of entries; `prepare` makes a missing store."""
        self._bucket, self._folder, self._prepare = bucket, folder, prepare
        self._listed: list[int] = []
        self._prefetched: dict[int, bytes | None] = {}

    def after(self, number: int) -> list[int]:
        """Return the numbers above `number` that are taken, ascending."""
        names = (
            item.path.rpartition("/")[2]
            for item in self._bucket.list(self._folder, after=self._path(number))
        )
        self._listed = sorted(
            int(name[:-5])
            for name in names
            if name.endswith(".json") and name[:-5].isdigit()
        )
        self._prefetched.clear()
        return list(self._listed)

    def read(self, number: int) -> bytes | None:
        """Return one entry, None if it is missing; prefetch the next ones."""
        if number not in self._prefetched:
            later = [taken for taken in self._listed if taken > number]
            numbers = [number, *later[: PREFETCHED - 1]]
            entries = self._bucket.get_all([self._path(taken) for taken in numbers])
            self._prefetched = dict(zip(numbers, entries, strict=True))
        return self._prefetched.pop(number)

    def time(self, number: int) -> float:
        """Return the time of writing of an entry, by the server's clock."""
        info = self._bucket.head(self._path(number))
        return info.time if info else 0.0

    def create(self, number: int, data: bytes) -> bool:
        """Create an entry durably, after its predecessor; False if it is taken."""
        # A request whose answer was lost is sent again by the client and then refused,
        # the number being taken: by us. Only the nonce shows it; two runs may well
        # begin with equal entries.
        self._prepare()
        path, nonce = self._path(number), uuid4().hex
        try:
            ours = self._bucket.create(path, data, nonce=nonce)
        except StoreError:
            with suppress(StoreError):
                if stored := self._bucket.nonce(path):
                    return stored == nonce
            raise
        return ours or self._bucket.nonce(path) == nonce

    def replace(self, number: int, data: bytes) -> None:
        """Replace a torn or missing entry, durably."""
        self._prepare()
        self._bucket.put(self._path(number), data)

    def remove(self, numbers: Sequence[int]) -> None:
        """Remove entries."""
        self._bucket.remove(self._path(number) for number in numbers)

    def mark(self, number: int, checksum: str) -> None:
        """Note next to an entry which one it is; not essential."""
        with suppress(StoreError):
            self._bucket.put(f"{self._folder}/{mark_name(number, checksum)}", b"")

    def marks(self) -> set[tuple[int, str]]:
        """Return numbers and checksums that were noted."""
        listed = self._bucket.list(self._folder)
        return parse_marks(info.path.rpartition("/")[2] for info in listed)

    def _path(self, number: int) -> str:
        return f"{self._folder}/{number:010}.json"
