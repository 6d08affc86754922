"""The pages of the public Python names, from signatures and docstrings."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator
from types import ModuleType
from typing import Any

from pydantic import BaseModel

from docs.generator.markdown import code, papers, prose, table

SECTIONS = (
    "Args",
    "Attributes",
    "Returns",
    "Yields",
    "Raises",
    "Examples",
    "Reference",
)
_HEADING = re.compile(rf"^({'|'.join(SECTIONS)}):$")
_PAGE = re.compile(r"\bdocs/([\w-]+)\.md")  # as it is in the repository
_NAMED = re.compile(r"^(\*{0,2}[\w.]+)(?: \([^)]*\))?: (.*)$", re.DOTALL)


def page(module: ModuleType, title: str) -> str:
    """Return the page of a module's public names."""
    names = [name for name in module.__all__ if not name.startswith("__")]
    listed = table(
        ("Name", "What it is"),
        [
            (f"[{code(name)}](#{name})", prose(_summary(getattr(module, name))))
            for name in names
        ],
    )
    about = "\n\n".join(_prose_or_code(inspect.getdoc(module) or ""))
    parts = [f"# {title}", about, listed]
    for name in names:
        parts += [f"## `{name}` {{#{name}}}", *_object(name, getattr(module, name))]
    return "\n\n".join(parts)


def _summary(item: Any) -> str:
    return (inspect.getdoc(item) or "").partition("\n\n")[0].replace("\n", " ")


def _object(name: str, item: Any) -> Iterator[str]:
    if not (inspect.isclass(item) and issubclass(item, BaseException | BaseModel)):
        yield f"```python\n{_signature(name, item)}\n```"
    yield from _docstring(inspect.getdoc(item) or "")
    if inspect.isclass(item) and issubclass(item, BaseModel) and item.model_fields:
        fields = item.model_fields.items()
        rows = [
            (
                code(field),
                code(str(info.get_default(call_default_factory=True))),
                prose(info.description or ""),
            )
            for field, info in fields
        ]
        yield table(("Field", "Default", "Meaning"), rows)
    if inspect.isclass(item):
        yield from _methods(item)


def _methods(cls: type) -> Iterator[str]:
    for name, method in vars(cls).items():
        shown = not name.startswith("_") and inspect.getdoc(method)
        if shown and inspect.isfunction(method):
            yield f"### `{cls.__name__}.{name}` {{#{cls.__name__}.{name}}}"
            yield f"```python\n{_signature(name, method)}\n```"
            yield from _docstring(inspect.getdoc(method) or "")


def _signature(name: str, item: Any) -> str:
    try:
        signature = inspect.signature(item)
    except (TypeError, ValueError):
        return name
    parts, kinds = [], set()
    for parameter in signature.parameters.values():
        if parameter.name == "self":
            continue
        if parameter.kind is parameter.KEYWORD_ONLY and parameter.kind not in kinds:
            parts += [] if parameter.VAR_POSITIONAL in kinds else ["*"]
        kinds.add(parameter.kind)
        parts.append(_parameter(parameter))
    back = ""
    if signature.return_annotation is not signature.empty and not inspect.isclass(item):
        back = f" -> {_plain(signature.return_annotation)}"
    line = f"{name}({', '.join(parts)}){back}"
    if len(line) <= 80:
        return line
    return f"{name}(\n" + "".join(f"    {part},\n" for part in parts) + f"){back}"


def _parameter(parameter: inspect.Parameter) -> str:
    """Return a parameter as its definition has it."""
    stars = {"VAR_POSITIONAL": "*", "VAR_KEYWORD": "**"}
    text, equals = stars.get(parameter.kind.name, "") + parameter.name, "="
    if parameter.annotation is not parameter.empty:
        text, equals = f"{text}: {_plain(parameter.annotation)}", " = "
    if parameter.default is not parameter.empty:
        default = getattr(parameter.default, "__name__", repr(parameter.default))
        text = f"{text}{equals}{default}"
    return text


def _plain(annotation: Any) -> str:
    is_text = isinstance(annotation, str)
    text = annotation if is_text else inspect.formatannotation(annotation)
    return text.strip("'\"")


def _docstring(text: str) -> Iterator[str]:
    section, lines = "", list[str]()
    for line in [*text.splitlines(), "End:"]:
        heading = _HEADING.match(line)
        if heading or line == "End:":
            yield from _section(section, inspect.cleandoc("\n".join(lines)))
            section, lines = (heading[1] if heading else ""), []
        else:
            lines.append(line if not section else line[4:])


def _section(name: str, text: str) -> Iterator[str]:
    if name == "Examples":
        yield f"**Example:**\n\n```python\n{text}\n```"
        return
    if not text:
        return
    if name in ("Args", "Attributes", "Raises"):
        entries = re.split(r"\n(?=\S)", text)
        rows = []
        for entry in entries:
            match = _NAMED.match(" ".join(entry.split()))
            if match:
                rows.append(
                    (code(match[1]), _PAGE.sub(r"[\1](../\1.md)", prose(match[2])))
                )
        yield table((name if name != "Args" else "Argument", "Meaning"), rows)
    elif name:
        render = papers if name == "Reference" else prose
        yield f"**{name}:** {render(' '.join(text.split()))}"
    else:
        yield from _prose_or_code(text)


def _prose_or_code(text: str) -> Iterator[str]:
    for paragraph in text.split("\n\n"):
        if paragraph.startswith("    "):
            yield f"```python\n{inspect.cleandoc(paragraph)}\n```"
        else:
            yield prose(paragraph)
