"""Studies opened with their stores, and the files that their parameters name."""

from __future__ import annotations

import hashlib
import io
import re
import sys
import zipfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from curvflow.errors import InputError, RequestError
from curvflow.flows.graph.source_folder import FolderFiles, files_in
from curvflow.flows.published_images.arrays import published_arrays
from curvflow.flows.reads.windows import importing, may_import
from curvflow.schemas.kinds.shared.images import ImageParams
from curvflow.schemas.nodes import Array
from curvflow.schemas.params import Params, SourceFile, SourceFolder
from curvflow.schemas.study.study import Stage, Study, load_study
from curvflow.schemas.study.yaml_source import MAX_CHARACTERS
from curvflow.stores.base import Store
from curvflow.stores.open import open_store

# Suffixes of files that torch.save or safetensors writes.
TENSOR_FILES = (".pt", ".pth", ".ckpt", ".bin", ".safetensors")
NAME = re.compile(r"^study: *[\"']?([^\"'#\n]*?)[\"']? *(?:#.*)?$", re.MULTILINE)
HEAD = 8192  # characters of a file in which its name is looked for
FORMS = ".npy, .npz, .pt, .pth, .ckpt, .bin or .safetensors"


def read_text(file: Path, *, what: str, remedy: str) -> str:
    """Read a text file.

    Raises:
        RequestError: it cannot be read, or is no UTF-8 text; ends with the remedy.
    """
    try:
        with file.open(encoding="utf-8") as opened:
            return opened.read(MAX_CHARACTERS + 1)  # one more is refused in parsing
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "it is no UTF-8 text"
        raise RequestError(
            f"{file}: expected {what}, got none: {reason}. {remedy}"
        ) from error


@dataclass(frozen=True)
class OpenedStudy:
    """A study, resolved, with its store.

    Attributes:
        study: the resolved study.
        store: its results.
        files: files that its parameters name.
        folder: where tables and figures are put.
    """

    study: Study
    store: Store
    files: SourceFiles
    folder: Path


def open_study(
    study: str | Path,
    *,
    store: str | Path | None = None,
    profile: str | None = None,
    overrides: Sequence[str] = (),
    max_nodes: int | None = None,
    create: bool = False,
) -> OpenedStudy:
    """Read a study and open its store.

    The study's folder becomes importable, so that a study can name modules next to it.
    The store is `.curvflow` in that folder by default; one that is not there counts as
    empty unless `create` is set. A study of more than `max_nodes` is not planned.

    Raises:
        RequestError: the file cannot be read or is no study, or the store cannot
            be opened.
    """
    folder, resolved = _from_file(study, profile, overrides)
    bounded = with_max_nodes(resolved, max_nodes)
    return opened_in(folder, bounded, store=store, create=create)


def namesakes(file: Path, name: str) -> list[str]:
    """Return the other study files of a folder that have this name."""
    others = [path for path in file.resolve().parent.glob("*.yaml") if path.is_file()]
    return sorted(
        other.name
        for other in others
        if other.name != file.name and _name_in(other) == name
    )


def _name_in(file: Path) -> str | None:
    """Return what a file's first lines say under `study:`, where it is plain."""
    try:
        with file.open(encoding="utf-8") as lines:
            head = lines.read(HEAD)
    except (OSError, UnicodeDecodeError):
        return None
    named = NAME.search(head)
    return named[1] if named else None


def with_max_nodes(study: Study, max_nodes: int | None) -> Study:
    """Return the study with another bound of its nodes, if one is given."""
    return study if max_nodes is None else replace(study, max_nodes=max_nodes)


def opened_in(
    folder: Path,
    study: Study,
    *,
    store: str | Path | None = None,
    create: bool = False,
) -> OpenedStudy:
    """Open the store of a study that is read, whose files lie in a folder."""
    where = folder / ".curvflow" if store is None else store
    opened = open_store(where, create=create)
    results = folder / "results" / study.name
    return OpenedStudy(study, opened, SourceFiles(folder), results)


def _from_file(
    path: str | Path, profile: str | None, overrides: Sequence[str]
) -> tuple[Path, Study]:
    file = Path(path)
    remedy = "`curvflow init` writes one to start from."
    text = read_text(file, what="a study file", remedy=remedy)
    folder = file.resolve().parent
    make_importable(folder)
    with importing(is_likely=may_import(text, *overrides)):
        return folder, load_study(
            text, file=str(path), profile=profile, overrides=overrides
        )


def make_importable(folder: Path) -> None:
    """Put a folder first on the path of imports."""
    others = [entry for entry in sys.path if entry != str(folder)]
    sys.path[:] = [str(folder), *others]


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
        if isinstance(params, ImageParams):
            wanted = published_arrays(params, self.folder)
            if wanted not in self._sought:
                wanted.seek(stage)
                self._sought.add(wanted)

    def digests(self, stage: Stage, params: Params) -> dict[str, str]:
        """Return the SHA-256 of each file that parameters name, by field."""
        fields = _source_fields(type(params))
        return {
            name: self._digest(stage, name, path, fields[name])
            for name, path in self._paths(params).items()
        }

    def read(
        self, params: Params, form: Mapping[str, Any]
    ) -> dict[str, Mapping[str, Array]]:
        """Read the arrays of all files that parameters name, by field and name.

        An .npy holds `array`, an .mtx `bytes`, a file of PyTorch's or a .safetensors
        its tensors, a file of a raw field `bytes`, a folder each of its files; these
        and published files, under `originals`, are read only when used.

        Raises:
            InputError: a file has changed or vanished since it was planned with, is
                of none of these forms, or holds Python objects.
        """
        if isinstance(params, ImageParams):
            return {"originals": published_arrays(params, self.folder)}
        fields = _source_fields(type(params))
        return {
            name: _arrays(name, path, form[name]["sha256"], fields[name])
            for name, path in self._paths(params).items()
        }

    def _paths(self, params: Params) -> dict[str, Path]:
        return {
            name: self.folder / Path(getattr(params, name)).expanduser()
            for name in _source_fields(type(params))
            if getattr(params, name) is not None
        }

    def _digest(self, stage: Stage, name: str, path: Path, mark: SourceFile) -> str:
        try:
            if isinstance(mark, SourceFolder):
                return files_in(name, path, mark).digest
            with path.open("rb") as file:
                return hashlib.file_digest(file, "sha256").hexdigest()
        except OSError as error:
            what = "folder" if isinstance(mark, SourceFolder) else "file"
            reason = f"expected a readable {what}, got {path} ({error.strerror})"
            hint = "Paths are relative to the study file's folder."
            raise stage.error((name,), reason, hint) from error


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
        raise InputError(
            f"{name}: expected the folder {path.name} that was planned with, got none "
            f"({error.strerror})"
        ) from error
    if files.digest != digest:
        raise InputError(
            f"{name}: expected the files of {path.name} that were planned with, got "
            "others. Run again"
        )
    return files


def _arrays(
    name: str, path: Path, digest: str, mark: SourceFile
) -> Mapping[str, Array]:
    if isinstance(mark, SourceFolder):
        return _folder(name, path, digest, mark)
    try:
        content = path.read_bytes()
    except OSError as error:
        raise InputError(
            f"{name}: expected the file {path.name} that was planned with, got none "
            f"({error.strerror})"
        ) from error
    if hashlib.sha256(content).hexdigest() != digest:
        raise InputError(
            f"{name}: expected the {path.name} that was planned with, got one that "
            "has changed since. Run again"
        )
    if mark.raw or path.suffix == ".mtx":  # what it is the kind knows
        return {"bytes": np.frombuffer(content, dtype=np.uint8)}
    if path.suffix in TENSOR_FILES:
        # Loaded here, for PyTorch takes a second.
        from curvflow.tasks.weights.state_dicts import read_tensors

        return read_tensors(content, path.name, name)
    try:
        loaded = np.load(io.BytesIO(content), allow_pickle=False)
        # An archive finds objects only when it is unpacked.
        return {"array": loaded} if isinstance(loaded, np.ndarray) else dict(loaded)
    except (ValueError, EOFError, zipfile.BadZipFile) as error:
        raise InputError(
            f"{name}: expected a file of numbers, {FORMS}, got {path.name}, which is "
            "none"
        ) from error
