"""YAML source: reading with lines and columns, and writing of studies."""

from __future__ import annotations

import io
import math
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

from ruamel.yaml import YAML
from ruamel.yaml.comments import CommentedMap, CommentedSeq
from ruamel.yaml.composer import Composer
from ruamel.yaml.error import MarkedYAMLError, YAMLError
from ruamel.yaml.nodes import MappingNode, Node, ScalarNode, SequenceNode
from ruamel.yaml.scalarstring import DoubleQuotedScalarString

from curvflow.errors import Place, StudyError
from curvflow.schemas.keys import normalised
from curvflow.schemas.nodes import Label
from curvflow.schemas.words import one_line

Path = tuple[Label, ...]
Location = Place | str

# Location for the user, from ruamel's line and column, which count from 0.
Locate = Callable[[int, int], Location]
_MAX_LENGTH = 60
_NUMBERS = ("tag:yaml.org,2002:int", "tag:yaml.org,2002:float")
_CONSTANTS = ("tag:yaml.org,2002:null", "tag:yaml.org,2002:bool")

# YAML 1.2 has no dates: they are text, like everything else that is no number.
_TEXTS = ("tag:yaml.org,2002:str", "tag:yaml.org,2002:timestamp")
_MERGE = "tag:yaml.org,2002:merge"

# Bounds of a document, its aliases written out; studies by hand hold a thousandth.
MAX_CHARACTERS = 1_000_000
MAX_VALUES = 100_000
MAX_LEVELS = 50
MAX_BITS = 4000  # of an integer; Python writes no more than 4300 digits
SHORTER = "Write counts in place of lists, and put data into files."


class Extent:
    """The size of a document, counted while it is read so that reading ends in time."""

    def __init__(self) -> None:
        self._values = self._characters = 0

    def excess(self, value: object, levels: int) -> str:
        """Count one value or key; return what is exceeded, empty while nothing is."""
        self._values += 1
        self._characters += len(value) if isinstance(value, str) else 0
        if levels > MAX_LEVELS:
            return f"expected at most {MAX_LEVELS} levels of nesting, got more"
        if self._values > MAX_VALUES:
            return (
                f"expected at most {MAX_VALUES:,} values, aliases written out, got more"
            )
        if self._characters > MAX_CHARACTERS:
            return (
                f"expected at most {MAX_CHARACTERS:,} characters, aliases written out, "
                "got more"
            )
        if type(value) is int and value.bit_length() > MAX_BITS:
            return "expected a number of at most 1,200 digits, got a longer one"
        return ""


@dataclass
class SourceNode:
    """A source node: one value of a study file.

    Attributes:
        value: a scalar, a mapping to `Written`, or a list of `Written`.
        place: where it stands, or the override that brought it.
        keys: the places of a mapping's keys.
    """

    value: Any
    place: Location
    keys: dict[Label, Location] = field(default_factory=dict)

    def children(self) -> list[tuple[Label, SourceNode]]:
        """Return keys or indices with their nodes."""
        if isinstance(self.value, dict):
            return list(self.value.items())
        return list(enumerate(self.value)) if isinstance(self.value, list) else []

    def copied(self) -> SourceNode:
        """Return a copy of which a part can be set; scalars, set as a whole, stay."""
        if isinstance(self.value, dict):
            entries = {key: item.copied() for key, item in self.value.items()}
            return SourceNode(entries, self.place, dict(self.keys))
        if isinstance(self.value, list):
            return SourceNode([item.copied() for item in self.value], self.place)
        return self

    def size(self) -> int:
        """Return the number of values in it, itself counted."""
        return 1 + sum(item.size() for _, item in self.children())

    def plain(self) -> Any:
        """Return the value as plain data."""
        if isinstance(self.value, dict):
            return {key: item.plain() for key, item in self.value.items()}
        if isinstance(self.value, list):
            return [item.plain() for item in self.value]
        return self.value


def has_child(item: SourceNode, part: Label) -> bool:
    """Return whether a mapping has this key, or a list this index."""
    if isinstance(item.value, dict):
        return part in item.value
    if isinstance(item.value, list):
        return type(part) is int and 0 <= part < len(item.value)
    return False


def dotted_path(path: Iterable[Label]) -> str:
    """Return a path as text, `stages.fit.model.hidden.0`."""
    return ".".join(map(_part, path))


def _part(part: Label) -> str:
    text = str(part)
    return short_yaml(part) if "\n" in text or len(text) > _MAX_LENGTH else text


def short_yaml(value: object) -> str:
    """Return a value as YAML on one line, cut after 60 characters."""
    text = one_line_yaml(value)
    return text if len(text) <= _MAX_LENGTH else f"{text[: _MAX_LENGTH - 3]}..."


def one_line_yaml(value: object) -> str:
    """Return a value roughly as YAML, on one line of any length."""
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    if isinstance(value, dict):
        items = (f"{key}: {one_line_yaml(item)}" for key, item in value.items())
        return "{" + ", ".join(items) + "}"
    if isinstance(value, list | tuple):
        return "[" + ", ".join(map(one_line_yaml, value)) + "]"
    return repr(value)


def parse(text: str, locate: Locate, path: Path = ()) -> SourceNode | None:
    """Parse YAML text to nodes; None if there is none. Lines count from 0."""
    if len(text) > MAX_CHARACTERS:
        message = f"expected at most {MAX_CHARACTERS:,} characters, got more"
        raise StudyError("", message, place=locate(0, 0), hint=SHORTER)
    yaml = YAML(typ="safe", pure=True)
    yaml.Composer = _BoundedComposer
    try:
        node = yaml.compose(text)
    except _ExcessError as error:
        place = locate(error.problem_mark.line, error.problem_mark.column)
        raise StudyError("", error.problem, place=place, hint=SHORTER) from None
    except YAMLError as error:
        problem: StudyError = _syntax_error(error, text, locate)
        raise problem from None
    except Exception as error:  # ruamel's own, of code points that there are not, say
        message = f"expected YAML, got what cannot be read ({error})"
        place = locate(yaml.reader.line, yaml.reader.column)
        hint = "Look at quotes and backslashes up to there."
        raise StudyError("", one_line(message), place=place, hint=hint) from None
    return None if node is None else _Reader(locate).read(node, path)


def _syntax_error(error: YAMLError, text: str, locate: Locate) -> StudyError:
    mark = getattr(error, "problem_mark", None)
    line, column = (mark.line, mark.column) if mark else (0, 0)
    problem = str(getattr(error, "problem", None) or getattr(error, "reason", error))
    written = text.splitlines()[line] if line < len(text.splitlines()) else ""
    problem = one_line(problem).removeprefix("but ")
    message = f"expected YAML, got a syntax error ({problem})"
    hint = _syntax_hint(problem, written)
    return StudyError("", message, place=locate(line, column), hint=hint)


def _syntax_hint(problem: str, written: str) -> str:
    """Return the remedy for a syntax error in a line."""
    if re.search(r"(?<![\"'])\$\{", written):
        return 'Put references in quotes: "${axis}".'
    if "\t" in written:
        return "Indent with spaces."
    if "another document" in problem:
        return "Leave out the line '---'."
    if "undefined alias" in problem:
        return "Put a text that begins with '*' in quotes."
    return "Look at brackets, quotes, colons and indentation up to there."


class _ExcessError(MarkedYAMLError):
    """The text exceeds a bound."""


class _BoundedComposer(Composer):
    """Ends once a text nests too deeply or holds too much, before it costs anything."""

    def __init__(self, loader: Any = None) -> None:
        super().__init__(loader)
        self._levels, self._extent = 0, Extent()

    def compose_node(self, parent: Any, index: Any) -> Any:
        message = self._extent.excess(None, self._levels)
        if message:
            mark = self.parser.peek_event().start_mark
            raise _ExcessError(problem=message, problem_mark=mark)
        self._levels += 1
        node = super().compose_node(parent, index)
        self._levels -= 1
        return node


class _Reader:
    """Turns ruamel's nodes into source nodes."""

    def __init__(self, locate: Locate) -> None:
        self.locate = locate
        self.extent = Extent()
        self.constructor = YAML(typ="safe", pure=True).constructor
        self.open: list[Node] = []

    def place(self, node: Node) -> Location:
        return self.locate(node.start_mark.line, node.start_mark.column)

    def error(self, node: Node, path: Path, message: str, hint: str) -> StudyError:
        return StudyError(dotted_path(path), message, place=self.place(node), hint=hint)

    def count(self, node: Node, value: object, path: Path) -> None:
        if message := self.extent.excess(value, len(self.open)):
            raise self.error(node, path, message, SHORTER)

    def read(self, node: Node, path: Path) -> SourceNode:
        if not isinstance(node, ScalarNode):  # which counts itself
            self.count(node, None, path)
        if any(node is parent for parent in self.open):
            message = f"expected plain data, got the anchor '{node.anchor}' in itself"
            raise self.error(node, path, message, "Write the value out.")
        self.open.append(node)
        try:
            if isinstance(node, MappingNode) and node.tag == "tag:yaml.org,2002:map":
                return self.mapping(node, path)
            if isinstance(node, SequenceNode) and node.tag == "tag:yaml.org,2002:seq":
                items = [self.read(n, (*path, i)) for i, n in enumerate(node.value)]
                return SourceNode(items, self.place(node))
            return SourceNode(self.scalar(node, path), self.place(node))
        finally:
            self.open.pop()

    def mapping(self, node: MappingNode, path: Path) -> SourceNode:
        result = SourceNode({}, self.place(node))
        seen: set[Label] = set()
        for key_node, value_node in node.value:
            key = self.key(key_node, path)
            # `1` and `true` are one key in Python, `1` and `"1"` one on the screen.
            if key in seen or str(key) in seen:
                message = f"expected each key once, got {short_yaml(key)} a second time"
                raise self.error(key_node, (*path, key), message, "Remove one of them.")
            seen |= {key, str(key)}
            result.keys[key] = self.place(key_node)
            result.value[key] = self.read(value_node, (*path, key))
            if value_node.start_mark.index == value_node.end_mark.index:
                # No value after the colon; ruamel points at the next token.
                result.value[key].place = self.place(key_node)
        return result

    def key(self, node: Node, path: Path) -> Label:
        if node.tag == _MERGE:
            hint = "Write the keys out, or alias the whole value."
            raise self.error(node, path, "expected a key, got the merge '<<'", hint)
        key = self.scalar(node, path) if isinstance(node, ScalarNode) else None
        if isinstance(key, str | int | float):
            normal: Label = normalised(key)
            return normal
        got = short_yaml(key) if isinstance(node, ScalarNode) else "a list or mapping"
        message = f"expected text or a number as a key, got {got}"
        raise self.error(node, path, message, "Put the key in quotes.")

    def scalar(self, node: Node, path: Path) -> Label | None:
        is_text = node.tag in _TEXTS or (node.tag in _NUMBERS and ":" in node.value)
        if is_text and isinstance(node, ScalarNode):
            self.count(node, node.value, path)
            return str(node.value)  # ruamel reads 12:30 as 750, as YAML 1.1 did
        if not isinstance(node, ScalarNode) or node.tag not in _NUMBERS + _CONSTANTS:
            tag = str(node.tag).replace("tag:yaml.org,2002:", "!!")
            message = f"expected plain data, got the tag '{tag}'"
            raise self.error(node, path, message, "Remove the tag.")
        try:
            value: Label | None = self.constructor.construct_object(node)
        except (ValueError, KeyError, IndexError, OverflowError):
            message = (
                f"expected a value that fits its tag, got {short_yaml(node.value)}"
            )
            raise self.error(node, path, message, "Remove the tag.") from None
        if isinstance(value, float) and not math.isfinite(value):
            message = f"expected a finite number, got {node.value}"
            raise self.error(node, path, message, "Write a number.")
        self.count(node, value, path)
        return value


WIDTH = 88
INDENT = 2

# Below this depth, that of the study's keys, short values are put on one line.
TOP = 2


def to_yaml(document: dict[str, Any]) -> str:
    """Return a study as YAML; stages and axes each on one line where they fit."""
    yaml = YAML()
    yaml.width = 1 << 20  # lines are broken here, not within a value
    yaml.indent(mapping=INDENT, sequence=2 * INDENT, offset=INDENT)
    stream = io.StringIO()
    yaml.dump(_with_style(document, 0, 0), stream)
    return stream.getvalue()


def _with_style(value: Any, depth: int, used: int) -> Any:
    """Return a value for ruamel, in flow style if it fits behind `used` characters."""
    if not isinstance(value, dict | list):
        return _quoted(value)
    on_one_line = depth >= TOP and used + _length(value) <= WIDTH
    inner = INDENT * (depth if isinstance(value, dict) else depth + 2)
    result: CommentedMap | CommentedSeq
    if isinstance(value, dict):
        result = CommentedMap()
        for key, item in value.items():
            before = 0 if on_one_line else inner + _length(key) + 2
            result[_quoted(key)] = _with_style(item, depth + 1, before)
    else:
        result = CommentedSeq()
        result += [_with_style(item, depth + 1, inner) for item in value]
    if on_one_line or not value:
        result.fa.set_flow_style()
    else:
        result.fa.set_block_style()
    return result


def _quoted(value: Any) -> Any:
    """Quote text that would be read as something else, and references."""
    if isinstance(value, str) and (
        "${" in value  # as the pages write references
        or not value.isprintable()  # line breaks of Unicode, which are escaped so
        or value.startswith((":", "?"))  # signs of a key where all is on one line
    ):
        return DoubleQuotedScalarString(value)
    return value


def _length(value: Any) -> int:
    """Return the approximate number of characters of a value on one line."""
    text = one_line_yaml(value)
    # Of texts, only references are always quoted.
    return len(text) - text.count("'") + 2 * text.count("${")
