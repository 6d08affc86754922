"""Declaration of `data.graph`, and the check of its file while planning."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field, PositiveInt, model_validator

from curvflow.errors import InputError
from curvflow.schemas import graph_heads as heads
from curvflow.schemas.explanations import Explanation
from curvflow.schemas.kind import Files, Kind, Variable
from curvflow.schemas.kinds.shared.graphs import GRAPH_OUTPUTS
from curvflow.schemas.nodes import Graph
from curvflow.schemas.params import Neutral, NotInKey, Params, SourceFile
from curvflow.schemas.published_graphs import (
    PUBLISHED,
    Published,
    PublishedName,
)

# Formats by the ends of the names of files; an edge list has any other.
SUFFIXES = {
    ".mtx": "matrix_market",
    ".graph": "metis",
    ".metis": "metis",
    ".smat": "smat",
    ".gml": "gml",
    ".npz": "npz",
}
ZIP = b"PK"


class GraphParams(Params):
    """A file, and the treatment of directions, repeated edges, loops and components."""

    path: Annotated[str | None, SourceFile(raw=True, rows_above="rows_above")] = Field(
        None,
        description="edge list or CSV file, MatrixMarket .mtx, METIS .graph, .smat, "
        ".gml or .npz; texts may be compressed, .gz; or a name",
    )
    name: Annotated[PublishedName | None, Neutral(None)] = Field(
        None, description="of a published graph, whose file is found and verified"
    )
    folder: Annotated[str | None, NotInKey()] = Field(
        None,
        description="folder of a published file, relative to the study's folder",
    )
    format: Literal["edges", "matrix_market", "metis", "smat", "gml", "npz"] | None = (
        Field(None, description="of the file; null takes that of its name")
    )
    columns: Annotated[tuple[PositiveInt | str, ...], Field(strict=False)] | None = (
        Field(
            None,
            min_length=2,
            max_length=3,
            description="of an edge list: names or numbers, from 1, of the columns of "
            "the two ends and, if there is one, of the weight; null takes the first "
            "two, and asks where there are more of which none is named weight",
        )
    )
    directed: Literal["symmetrise", "refuse"] = Field(
        "symmetrise",
        description="symmetrise: i j and j i are one edge, of the larger weight; "
        "refuse: a file whose edges have directions is refused",
    )
    multi_edges: Literal["sum", "once"] = Field(
        "sum",
        description="edges that are repeated in one direction: sum their weights, or "
        "count them once, with the largest",
    )
    self_loops: Literal["drop", "keep"] = Field(
        "drop", description="edges from a node to itself"
    )
    component: Literal["all", "largest"] = Field(
        "all",
        description="largest keeps the largest connected component alone, of equal "
        "ones that of the first node",
    )
    rows_above: Annotated[int, NotInKey()] = Field(
        1 << 27,
        ge=0,
        description="size of a file above which it stays on disk, and is read a block "
        "at a time; results have the same bits",
    )

    @model_validator(mode="before")
    @classmethod
    def _format_of_name(cls, values: Any) -> Any:
        """Settle the format, which enters the key as the file's name does not."""
        if not isinstance(values, dict):
            return values
        published = PUBLISHED.get(values.get("name", ""))
        if published is not None:
            return _as_published(values, published)
        if values.get("format") is not None:
            return values
        if not isinstance(values.get("path"), str):
            return values
        name = values["path"].lower().removesuffix(".gz")
        suffix = "." + name.rpartition(".")[2]
        return values | {"format": SUFFIXES.get(suffix, "edges")}

    @model_validator(mode="after")
    def _one_file(self) -> GraphParams:
        if self.path is None and self.name is None:
            raise ValueError(
                "expected a path, or the name of a published graph, got neither. Give "
                "one of them."
            )
        if self.folder is not None and self.name is None:
            raise ValueError(
                "'folder' cannot be combined with 'path'. Write it into the path."
            )
        return self

    @model_validator(mode="after")
    def _distinct_columns(self) -> GraphParams:
        if self.columns is None:
            return self
        if self.format != "edges":
            raise ValueError(
                f"columns cannot be combined with format: {self.format}. Remove them."
            )
        if len(set(self.columns)) < len(self.columns):
            raise ValueError(
                f"expected distinct columns, got {list(map(str, self.columns))}. Name "
                "each once."
            )
        return self


def _as_published(values: dict[str, Any], published: Published) -> dict[str, Any]:
    """Settle the form of a published file."""
    known = {"format": published.format, "columns": published.columns, "path": None}
    for field, value in known.items():
        if values.get(field) not in (None, value):
            raise ValueError(
                f"'{field}' cannot be combined with 'name'. Remove one of them."
            )
    return values | known


def check(params: GraphParams, files: Files) -> None:
    """Refuse a file that is no graph, by its first lines.

    Args:
        params: format and columns.
        files: the bytes of the file, under `path`.

    Raises:
        InputError: it is of another form, has no such columns, or is directed where
            that is refused.
    """
    if params.name is not None:
        return  # its checksum is known
    content = files["path"]["bytes"]
    if params.format == "npz":
        if content[:2].tobytes() != ZIP:
            raise InputError(
                f"path: expected an .npz file, got {params.path}. Set format to what "
                "the file is."
            )
        return
    lines = heads.head_of(content)
    if params.format == "edges":
        heads.edges_head(lines, params.columns)
    elif params.format == "matrix_market":
        heads.matrix_market_head(lines)
    elif params.format == "smat":
        heads.smat_head(lines)
    elif params.format == "metis":
        heads.metis_head(lines)
    else:
        heads.check_gml(lines, refuses_directed=params.directed == "refuse")


NAME_OUTPUTS = (
    Variable(
        "ids",
        "number of each node in the file; none where nodes have names",
        ("id",),
        dtype="int64",
        bulk=True,
    ),
    Variable(
        "names",
        "name of each node in the file; none where nodes have numbers",
        ("name",),
        dtype="str",
        bulk=True,
    ),
)

KIND = Kind(
    name="data.graph",
    version=1,
    summary="Graph of a file: edge list, CSV, MatrixMarket, METIS, smat, GML or npz.",
    params=GraphParams,
    returns=Graph,
    outputs=(*GRAPH_OUTPUTS, *NAME_OUTPUTS),
    check=check,
)

EXPLANATION = Explanation(
    formula=(
        "a_ij = max(w_ij, w_ji), where w_ij is the sum, or the largest, of the weights "
        "of the edges from i to j; nodes in rising order of their numbers or names"
    ),
    source="none: the graph is the user's, or one of those that a package holds",
    cost="none: the file is read once, in a few blocks of memory beside the edges",
    example="""\
study: example
stages:
  friends: {use: data.graph, path: friends.csv, component: largest}
""",
    page="graphs.md#graphs-of-files",
    units={"columns": "column", "rows_above": "byte"},
)
