"""Drafts: entries under `stages:`, read before they are connected to each other."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from importlib import import_module

from pydantic import PydanticUserError

from curvflow.errors import RequestError, nearest
from curvflow.schemas.kind import Kind
from curvflow.schemas.kinds import all_kinds, known_kind
from curvflow.schemas.nodes import Label, Weights
from curvflow.schemas.params import NotInKey, SourceFile
from curvflow.schemas.study.axes import Axis, is_identifier
from curvflow.schemas.study.document import Document
from curvflow.schemas.study.stage import At, read_at
from curvflow.schemas.study.template import Template, compile_template
from curvflow.schemas.study.yaml_source import Path, SourceNode, short_yaml
from curvflow.schemas.user_errors import before
from curvflow.schemas.words import one_line


def find_kind(name: str, *, place: str) -> Kind:
    """Return the kind that `use: name` stands for; `place` is for messages."""
    return read_kind(Document(SourceNode(name, place)), ())


def read_kind(document: Document, path: Path) -> Kind:
    """Return the kind that the `use:` at a path names, importing it if need be."""
    item = document.at(path)
    value = item.plain() if item else None
    if isinstance(value, str) and ":" in value:
        return _import_kind(document, path, value)
    kind = known_kind(value) if isinstance(value, str) else None
    if kind is not None:
        return kind
    kinds = all_kinds()
    got = short_yaml(value) if item else "none"
    hint = "`curvflow kinds` lists them."
    if isinstance(value, str):
        user_kind = 'For a kind of yours write use: "module:name".'
        # Of `spectrum` the kind that ends in it is meant.
        ends = [name for name in kinds if name.endswith(f".{value}")]
        hint = f"{nearest((ends or [value])[0], kinds, otherwise=hint)} {user_kind}"
    raise document.error(path, f"expected the name of a kind, got {got}", hint)


def _import_kind(document: Document, path: Path, text: str) -> Kind:
    module_name, _, attribute = text.partition(":")
    try:
        module = import_module(module_name)
    except RequestError:
        raise
    except (Exception, SystemExit) as error:  # a module may raise anything
        message = (
            f"{before(error)}expected a module that can be imported, got "
            f"'{module_name}'"
        )
        hint = f"Python says: {_words_of(error)}."
        raise document.error(path, message, hint) from error
    kind = getattr(getattr(module, attribute, None), "kind", None)
    if isinstance(kind, Kind):
        _complete(document, path, kind)
        return kind
    known = [name for name, item in vars(module).items() if hasattr(item, "kind")]
    message = f"expected a function decorated with @curvflow.stage, got '{text}'"
    hint = nearest(attribute, known) or f"'{module_name}' has none."
    raise document.error(path, message, hint)


def _complete(document: Document, path: Path, kind: Kind) -> None:
    """Build the parameters of a user's kind, whose types may be none of a study's."""
    try:
        kind.params.model_rebuild()
    except (NameError, PydanticUserError) as error:
        reason = str(error).partition("\n")[0].partition(". ")[0]
        message = (
            f"expected parameters that a study can give, got {kind.params.__name__}"
        )
        hint = f"pydantic says: {reason}. Use numbers, text, lists and other Params."
        raise document.error(path, message, hint) from error


def _words_of(error: BaseException) -> str:
    """Return an error's text, with its type where the text alone says little."""
    text = one_line(error).removesuffix(".")
    if isinstance(error, (ImportError, SyntaxError, ValueError, TypeError)):
        return text
    return f"{type(error).__name__}: {text}".removesuffix(": ")


@dataclass(frozen=True)
class Draft:
    """A stage as written.

    Attributes:
        name: of the stage.
        kind: the kind that `use:` names.
        given: per input that is written the names of stages, not yet looked up.
        at: which epochs of its weights it looks at.
        template: its parameters.
        files: patterns of files that it stands on.
        env: environment variables that it stands on.
    """

    name: str
    kind: Kind
    given: Mapping[str, tuple[str, ...]]
    at: At
    template: Template
    files: tuple[str, ...] = ()
    env: tuple[str, ...] = ()


# Keys of every stage, unless its kind has an input or parameter of the name.
NAME_IT = "Write a name that stands under 'stages:'."
DECLARED = {"files": "a path or a pattern", "env": "the name of a variable"}


def declared_keys(kind: Kind) -> list[str]:
    """Return those of `files` and `env` that a stage of a kind can declare."""
    taken = {*kind.inputs, *parameter_names(kind)}
    return [key for key in DECLARED if key not in taken]


def takes_weights(kind: Kind) -> bool:
    """Return whether a kind takes weights, and so has the key `at:`."""
    return any(issubclass(taken.edge, Weights) for taken in kind.inputs.values())


def parameter_names(kind: Kind) -> list[str]:
    """Return the names of a kind's parameters as a study writes them."""
    fields = kind.params.model_fields.items()
    return [info.alias or name for name, info in fields]


def read_draft(document: Document, name: Label, axes: Mapping[str, Axis]) -> Draft:
    """Read one stage: its name, kind, keys, inputs, `at:` and references."""
    path = ("stages", name)
    if not is_identifier(name):
        message = f"expected a name of letters, digits and _, got {short_yaml(name)}"
        raise document.error(path, message, "Rename the stage.", key=True)
    entry = document.mapping(path, "a mapping with the key 'use'")
    kind = read_kind(document, (*path, "use"))
    _check_keys(document, path, kind)
    given = [key for key in kind.inputs if _is_input(document, path, kind, key)]
    names = [k for k in parameter_names(kind) if k in entry and k not in given]
    return Draft(
        str(name),
        kind,
        {key: _stage_names(document, path, kind, key) for key in given},
        read_at(document, (*path, "at")) if takes_weights(kind) else At(),
        compile_template(document, str(name), names, axes, _verbatim(kind)),
        **{key: _declared(document, (*path, key)) for key in declared_keys(kind)},
    )


def _is_input(document: Document, path: Path, kind: Kind, key: str) -> bool:
    """Return whether a stage gives an input: of a parameter's name, by a stage's."""
    item = document.at((*path, key))
    if item is None or key not in parameter_names(kind):
        return item is not None
    value = item.plain()
    return isinstance(value, str) and document.at(("stages", value)) is not None


def _declared(document: Document, path: Path) -> tuple[str, ...]:
    """Read a list of texts, such as that of `files:`; empty if it is missing."""
    item = document.at(path)
    value = item.plain() if item else []
    if not isinstance(value, list):
        message = f"expected a list in brackets, got {short_yaml(value)}"
        raise document.error(path, message, "Put it in brackets.")
    for index, text in enumerate(value):
        if not isinstance(text, str) or not text or text in value[:index]:
            expected = DECLARED[str(path[-1])]
            message = f"expected {expected}, each once, got {short_yaml(text)}"
            raise document.error((*path, index), message, "Correct or remove it.")
    return tuple(value)


def _verbatim(kind: Kind) -> set[str]:
    """Return the parameters that name files or enter no key, as a study writes them."""
    return {
        info.alias or name
        for name, info in kind.params.model_fields.items()
        if any(isinstance(mark, SourceFile | NotInKey) for mark in info.metadata)
    }


def _check_keys(document: Document, path: Path, kind: Kind) -> None:
    known = ["use", *kind.inputs, *parameter_names(kind), *declared_keys(kind)]
    if takes_weights(kind):
        known.append("at")
    elif document.at((*path, "at")) and "at" not in known:
        message = f"expected a kind that takes weights, got {kind.name}"
        raise document.error((*path, "at"), message, "Remove 'at'.", key=True)
    document.refuse_unknown(path, known, f"a key of {kind.name}")


def _stage_names(
    document: Document, path: Path, kind: Kind, name: str
) -> tuple[str, ...]:
    full = (*path, name)
    item = document.at(full)
    value = item.plain() if item else None
    if isinstance(value, str):
        return (value,)
    many = kind.inputs[name].many
    if not (many and isinstance(value, list) and value):
        expected = "the name of a stage" + (", or a list of such names" if many else "")
        message = f"expected {expected}, got {short_yaml(value)}"
        raise document.error(full, message, NAME_IT)
    for index, stage in enumerate(value):
        repeated = stage in value[:index]
        if repeated or not isinstance(stage, str):
            expected = "each stage once" if repeated else "the name of a stage"
            message = f"expected {expected}, got {short_yaml(stage)}"
            hint = "Remove one of them." if repeated else NAME_IT
            raise document.error((*full, index), message, hint)
    return tuple(value)
