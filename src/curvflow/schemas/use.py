"""`use:`, the kind of a stage: a name, or the place of a kind of the user's own."""

from __future__ import annotations

from importlib import import_module

from curvflow.errors import nearest
from curvflow.schemas.document import Document
from curvflow.schemas.kind import Kind
from curvflow.schemas.kinds import all_kinds
from curvflow.schemas.written import Path, Written, shown


def named_kind(name: str, *, place: str) -> Kind:
    """Find the kind that a study would find under this name.

    Args:
        name: as `use:` gives it.
        place: where it was asked for, for messages.

    Returns:
        The declaration.

    Raises:
        StudyError: as `read_kind`.
    """
    return read_kind(Document(Written(name, place)), ())


def read_kind(document: Document, path: Path) -> Kind:
    """Find the kind that a stage uses.

    Args:
        document: the resolved study.
        path: of the `use:`.

    Returns:
        The declaration.

    Raises:
        StudyError: nothing is written, there is no such kind, or the module that
            should hold it cannot be imported.
    """
    item = document.at(path)
    value = item.plain() if item else None
    if isinstance(value, str) and ":" in value:
        return _imported(document, path, value)
    kinds = all_kinds()
    if isinstance(value, str) and value in kinds:
        return kinds[value]
    got = shown(value) if item else "none"
    hint = "`curvflow kinds` lists them."
    if isinstance(value, str):
        own = 'For a kind of yours write use: "module:name".'
        # Of `spectrum` the kind that ends in it is meant.
        ends = [name for name in kinds if name.endswith(f".{value}")]
        hint = f"{nearest((ends or [value])[0], kinds, otherwise=hint)} {own}"
    raise document.complain(path, f"expected the name of a kind, got {got}", hint)


def _imported(document: Document, path: Path, text: str) -> Kind:
    module_name, _, attribute = text.partition(":")
    try:
        module = import_module(module_name)
    except (ImportError, SyntaxError, ValueError, TypeError) as error:
        message = f"expected a module that can be imported, got '{module_name}'"
        hint = f"Python says: {' '.join(str(error).split())}."
        raise document.complain(path, message, hint) from error
    kind = getattr(getattr(module, attribute, None), "kind", None)
    if isinstance(kind, Kind):
        return kind
    known = [name for name, item in vars(module).items() if hasattr(item, "kind")]
    message = f"expected a function decorated with @curvflow.stage, got '{text}'"
    hint = nearest(attribute, known) or f"'{module_name}' has none."
    raise document.complain(path, message, hint)
