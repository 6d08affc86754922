"""A study as YAML text that a person can read."""

from __future__ import annotations

import io
from typing import Any

from ruamel.yaml import YAML
from ruamel.yaml.comments import CommentedMap, CommentedSeq
from ruamel.yaml.scalarstring import DoubleQuotedScalarString

from curvflow.schemas.written import flow

WIDTH = 88
INDENT = 2
# What stands deeper than the study's keys is put on one line where that is short.
TOP = 2


def to_yaml(document: dict[str, Any]) -> str:
    """Write a study as YAML.

    Args:
        document: plain data.

    Returns:
        Text that reads as the same data, in the same order; stages and axes each on a
        line where they fit.
    """
    yaml = YAML()
    yaml.width = 1 << 20  # lines are broken here, not within a value
    yaml.indent(mapping=INDENT, sequence=2 * INDENT, offset=INDENT)
    stream = io.StringIO()
    yaml.dump(_laid_out(document, 0, 0), stream)
    return stream.getvalue()


def _laid_out(value: Any, depth: int, used: int) -> Any:
    """Choose for each value whether it goes on one line.

    Args:
        value: plain data.
        depth: keys and indices above it.
        used: characters of its line that stand before it.

    Returns:
        The value as ruamel takes it.
    """
    if not isinstance(value, dict | list):
        return _quoted(value)
    on_one_line = depth >= TOP and used + _length(value) <= WIDTH
    inner = INDENT * (depth if isinstance(value, dict) else depth + 2)
    result: CommentedMap | CommentedSeq
    if isinstance(value, dict):
        result = CommentedMap()
        for key, item in value.items():
            before = 0 if on_one_line else inner + _length(key) + 2
            result[_quoted(key)] = _laid_out(item, depth + 1, before)
    else:
        result = CommentedSeq()
        result += [_laid_out(one, depth + 1, inner) for one in value]
    if on_one_line or not value:
        result.fa.set_flow_style()
    else:
        result.fa.set_block_style()
    return result


def _quoted(value: Any) -> Any:
    """Quote what is read as something else, or is written so on the pages."""
    if isinstance(value, str) and (
        "${" in value  # as the pages write references
        or not value.isprintable()  # line breaks of Unicode, which are escaped so
        or value.startswith((":", "?"))  # signs of a key where all is on one line
    ):
        return DoubleQuotedScalarString(value)
    return value


def _length(value: Any) -> int:
    """Return about how many characters a value takes on one line."""
    text = flow(value)
    # Of texts, only references are sure to stand in quotes.
    return len(text) - text.count("'") + 2 * text.count("${")
