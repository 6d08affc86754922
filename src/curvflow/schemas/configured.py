"""A part of a configuration file, read as a model."""

from __future__ import annotations

from typing import TypeVar

from pydantic import BaseModel, ValidationError

from curvflow.schemas.complaints import complaints
from curvflow.schemas.document import Document
from curvflow.schemas.written import Path

M = TypeVar("M", bound=BaseModel)


def configured(model: type[M], document: Document, path: Path) -> M:
    """Read one part of a file as a model.

    Args:
        model: what it is to be.
        document: the file's content.
        path: of the part, which must be there.

    Returns:
        The model.

    Raises:
        StudyError: a value does not fit; the error has its place in the file.
    """
    written = document.at(path)
    assert written is not None
    value = written.plain()
    try:
        return model.model_validate(value, strict=True)
    except ValidationError as error:
        # A misspelt key explains a missing one.
        first = min(complaints(error, model, value), key=lambda found: found.missing)
        words, full = first.wording, (*path, *first.path)
        raise document.complain(
            full, words.message, words.hint, key=first.key
        ) from None
