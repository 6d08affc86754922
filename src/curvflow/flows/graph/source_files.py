"""Files and folders that the parameters of a study name, by their contents."""

from __future__ import annotations

import hashlib
import io
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from curvflow.errors import InputError
from curvflow.flows.graph.hub_cache import snapshot
from curvflow.flows.graph.network_files import (
    TENSOR_FILES,
    checkpoint_files,
    files_digest,
    joint_digest,
    network_files,
)
from curvflow.flows.graph.source_folder import (
    CHANGED,
    FolderFiles,
    files_in,
    vanished,
)
from curvflow.schemas.disk_arrays import DiskArray, as_array
from curvflow.schemas.kinds.shared.imported import ImportedParams
from curvflow.schemas.kinds.weights.checkpoints import CheckpointsParams
from curvflow.schemas.kinds.weights.import_ import ImportParams
from curvflow.schemas.nodes import Array
from curvflow.schemas.params import Params, SourceFile, SourceFolder
from curvflow.schemas.study.study import Stage
from curvflow.stores.files import NO_ARRAYS
from curvflow.stores.row_files import byte_rows, npy_rows
from curvflow.stores.stored_arrays import NETCDF, is_zarr, stored_arrays

if TYPE_CHECKING:
    from curvflow.flows.published.arrays import PublishedArrays
    from curvflow.flows.published.graphs import PublishedGraph

FORMS = ".npy, .npz, .pt, .pth, .ckpt, .bin, .safetensors, .nc or a zarr folder"

# Everything of a folder of arrays, as deep as groups may lie in groups.
_WHOLE = SourceFolder(suffixes=("",), depth=64, hidden=True)


class SourceFiles:
    """The files that a study names, relative to the study's folder.

    A file counts by its content: moving or renaming it changes no key. Published files
    enter no key: their checksums are known.

    Attributes:
        folder: the study's, where relative paths start.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._sought: set[Mapping[str, Array]] = set()

    def seek(self, stage: Stage, params: Params) -> None:
        """Check that published files are there, unread; StudyError if not."""
        for wanted in self._published(params).values():
            if wanted not in self._sought:
                wanted.seek(stage)
                self._sought.add(wanted)

    def _published(
        self, params: Params
    ) -> Mapping[str, PublishedArrays | PublishedGraph]:
        """Return the published files that parameters name, if any, by their source."""
        # Loaded here, for few studies name published files, and a plan of results that
        # are all there asks for none.
        from curvflow.schemas.kinds.data.graphs.graph import GraphParams
        from curvflow.schemas.kinds.shared.images import ImageParams

        if isinstance(params, ImageParams):
            from curvflow.flows.published.arrays import published_arrays

            return {"originals": published_arrays(params, self.folder)}
        if isinstance(params, GraphParams) and params.name is not None:
            from curvflow.flows.published.graphs import PublishedGraph

            return {"path": PublishedGraph(params.name, self.folder, params.folder)}
        return {}

    def digests(
        self, stage: Stage, params: Params
    ) -> dict[str, str | Mapping[str, str]]:
        """Return the SHA-256 of each file that parameters name, by field.

        Of a folder of checkpoints there is one for each step, by its digits; beside
        that of a repository's files is its commit.
        """
        return {name: self._digest(stage, params, name) for name in _named(params)}

    def read(
        self, params: Params, form: Mapping[str, Any]
    ) -> dict[str, Mapping[str, Array]]:
        """Read the arrays of all files that parameters name, by field and name.

        An .npy holds `array`, an .mtx `bytes`, a file of PyTorch's or a .safetensors
        its tensors, a zarr folder or netCDF file its arrays, a file of a raw field
        `bytes`, a folder each of its files; these and published files, under
        `originals`, are read only when used. The checkpoints of a folder are under the
        field, `@` and the step.

        Raises:
            InputError: a file has changed or vanished since it was planned with, is
                of none of these forms, or holds Python objects.
        """
        if published := self._published(params):
            return dict(published)
        return {
            source: arrays
            for name in _named(params)
            for source, arrays in self._read(params, name, form[name])
        }

    def _read(
        self, params: Params, name: str, planned: Mapping[str, str]
    ) -> Iterator[tuple[str, Mapping[str, Array]]]:
        mark = _source_fields(type(params))[name]
        if isinstance(mark, SourceFolder):
            folder = self._path(params, name)
            yield name, _folder(name, folder, planned["sha256"], mark)
            return
        files = self._files(params, name, planned)
        if not isinstance(params, CheckpointsParams):
            limit = getattr(params, mark.rows_above) if mark.rows_above else None
            path = files[""][0]
            if _is_stored(path) and not mark.raw:
                yield name, _stored(name, path, planned["sha256"], limit)
                return
            if array := _on_disk(name, path, planned["sha256"], limit, raw=mark.raw):
                yield name, {"bytes" if mark.raw else "array": as_array(array)}
                return
            read = partial(_array_of, raw=mark.raw)
            yield name, _all_arrays(name, files[""], planned["sha256"], read)
            return
        for step in sorted(planned, key=int):
            source = f"{name}@{step}"
            paths = files.get(step, ())
            yield source, _all_arrays(source, paths, planned[step], _array_of)

    def _path(self, params: Params, name: str) -> Path:
        return self.folder / Path(getattr(params, name)).expanduser()

    def _files(
        self, params: Params, name: str, planned: Mapping[str, str] | None = None
    ) -> dict[str, tuple[Path, ...]]:
        """Return the files that a field names, by step where there are several."""
        if isinstance(params, ImportParams) and name == "repo":
            # A branch may have moved on since it was planned with.
            revision = planned["commit"] if planned else params.revision
            return {"": network_files(snapshot(str(params.repo), revision))}
        path = self._path(params, name)
        if isinstance(params, CheckpointsParams):
            by_step = checkpoint_files(path, params)
            return {str(step): files for step, files in by_step.items()}
        if isinstance(params, ImportedParams) and path.is_dir():
            return {"": network_files(path)}
        return {"": (path,)}

    def _digest(
        self, stage: Stage, params: Params, name: str
    ) -> str | Mapping[str, str]:
        mark = _source_fields(type(params))[name]
        is_folder = isinstance(mark, SourceFolder)
        try:
            if isinstance(mark, SourceFolder):
                return files_in(name, self._path(params, name), mark).digest
            files = self._files(params, name)
            digests = {step: _digest(name, paths) for step, paths in files.items()}
        except InputError as error:
            raise stage.error((name,), str(error)) from error
        except OSError as error:
            what = "folder" if is_folder else "file"
            reason = (
                f"expected a readable {what}, got {error.filename} ({error.strerror})"
            )
            hint = "Paths are relative to the study file's folder."
            raise stage.error((name,), reason, hint) from error
        if isinstance(params, CheckpointsParams):
            return digests
        if isinstance(params, ImportParams) and name == "repo":
            return {"commit": files[""][0].parent.name, "sha256": digests[""]}
        return digests[""]


def _named(params: Params) -> list[str]:
    """Return the fields that name a file."""
    fields = _source_fields(type(params))
    return [name for name in fields if getattr(params, name) is not None]


@cache
def _source_fields(params: type[Params]) -> Mapping[str, SourceFile]:
    return {
        name: mark
        for name, info in params.model_fields.items()
        for mark in info.metadata
        if isinstance(mark, SourceFile)
    }


def _folder(name: str, path: Path, digest: str, mark: SourceFolder) -> FolderFiles:
    try:
        files = files_in(name, path, mark)
    except OSError as error:
        message = vanished(f"folder {path.name}", error)
        raise InputError(f"{name}: {message}") from error
    if files.digest != digest:
        raise InputError(
            f"{name}: expected the files of {path.name} that were planned with, got "
            "others. Run again."
        )
    return files


def _digest(name: str, files: Sequence[Path]) -> str:
    if len(files) == 1 and is_zarr(files[0]):
        return files_in(name, files[0], _WHOLE).digest
    return files_digest(files)


def _is_stored(path: Path) -> bool:
    return path.suffix in NETCDF or is_zarr(path)


def _stored(
    name: str, path: Path, digest: str, limit: int | None
) -> Mapping[str, Array]:
    """Return the arrays of a zarr folder or netCDF file, the large ones unread.

    Raises:
        InputError: they are not as they were planned with, or cannot be read.
    """
    try:
        arrays = stored_arrays(name, path, limit)
        is_same = _digest(name, [path]) == digest
    except OSError as error:
        raise InputError(f"{name}: {vanished(path.name, error)}") from error
    if not is_same:
        raise InputError(f"{name}: {CHANGED.format(path.name)}")
    return arrays


def _on_disk(
    name: str, path: Path, digest: str, limit: int | None, *, raw: bool
) -> DiskArray | None:
    """Return the array of a `.npy` file above a limit of bytes, its rows not read.

    Of a raw field it is that of the bytes of any file.

    Raises:
        InputError: the file is not as it was planned with, or has no rows in order.
    """
    try:
        is_large = limit is not None and path.stat().st_size > limit
        array = None
        if is_large and raw:
            array = byte_rows(path)
        elif is_large and path.suffix == ".npy":
            array = npy_rows(path)
        is_same = array is None or files_digest([path]) == digest
    except InputError as error:
        raise InputError(f"{name}: {error}") from error
    except OSError:
        return None  # to be told where it is read whole
    if not is_same:
        raise InputError(f"{name}: {CHANGED.format(path.name)}")
    return array


def _all_arrays(
    source: str,
    files: Sequence[Path],
    digest: str,
    read: Callable[[str, Path, bytes], dict[str, Array]],
) -> dict[str, Array]:
    """Return the arrays of a network's files, if these are as they were planned with.

    Raises:
        InputError: they are not, or hold no arrays.
    """
    names = ", ".join(path.name for path in files) or "files"
    try:
        contents = {path.name: path.read_bytes() for path in files}
    except OSError as error:
        message = vanished(f"file {names}", error)
        raise InputError(f"{source}: {message}") from error
    known = {name: hashlib.sha256(c).hexdigest() for name, c in contents.items()}
    if not known or joint_digest(known) != digest:
        raise InputError(f"{source}: {CHANGED.format(names)}")
    arrays: dict[str, Array] = {}
    for path in files:
        arrays |= read(source, path, contents[path.name])
    return arrays


def _array_of(
    name: str, path: Path, content: bytes, *, raw: bool = False
) -> dict[str, Array]:
    if raw or path.suffix == ".mtx":  # what it is the kind knows
        return {"bytes": np.frombuffer(content, dtype=np.uint8)}
    if path.suffix in TENSOR_FILES:
        # Loaded here, for PyTorch takes a second.
        from curvflow.tasks.weights.state_dicts import read_tensors

        return read_tensors(content, path.name, name)
    try:
        loaded = np.load(io.BytesIO(content), allow_pickle=False)
        # An archive finds objects only when it is unpacked.
        return {"array": loaded} if isinstance(loaded, np.ndarray) else dict(loaded)
    except NO_ARRAYS as error:
        raise InputError(
            f"{name}: expected a file of numbers, {FORMS}, got {path.name}, which is "
            "none. Save the numbers in one of these forms."
        ) from error
