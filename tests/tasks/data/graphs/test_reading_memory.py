"""What reading a file of a graph takes, told from its beginning."""

import gzip
import io

import numpy as np
import pytest
from scipy import sparse

from curvflow.errors import InputError
from curvflow.schemas.kinds import find_kind
from curvflow.schemas.nodes import Member
from curvflow.tasks.data.graphs.graph import estimated_entries, reading_bytes
from curvflow.tasks.registry import find

N, EDGES = 5_000, 20_000


def drawn():
    generator = np.random.default_rng(0)
    ends = generator.integers(0, N, (EDGES, 2))
    return ends[ends[:, 0] != ends[:, 1]]


ENDS = drawn()
MATRIX = sparse.coo_array((np.ones(len(ENDS)), ENDS.T), (N, N)).tocsr()
MATRIX = MATRIX.maximum(MATRIX.T.tocsr())


def listed(sep=" ", name="", weight=""):
    lines = [f"{name}{i}{sep}{name}{j}{weight}" for i, j in ENDS.tolist()]
    return ("\n".join(lines) + "\n").encode()


def archive(**arrays):
    file = io.BytesIO()
    np.savez(file, **arrays)
    return file.getvalue()


def saved():
    file = io.BytesIO()
    sparse.save_npz(file, MATRIX)
    return file.getvalue()


def metis():
    rows = np.split(MATRIX.indices + 1, MATRIX.indptr[1:-1])
    lines = [f"{N} {MATRIX.nnz // 2}", *(" ".join(map(str, row)) for row in rows)]
    return ("\n".join(lines) + "\n").encode()


def matrix(head, first):
    found = MATRIX.tocoo()
    pairs = zip(found.row + first, found.col + first, strict=True)
    lines = [head, f"{N} {N} {MATRIX.nnz}", *(f"{i} {j} 1" for i, j in pairs)]
    return ("\n".join(lines).lstrip() + "\n").encode()


def gml():
    edges = "".join(f"edge [\nsource {i}\ntarget {j}\n]\n" for i, j in ENDS.tolist())
    return f"graph [\n{edges}]\n".encode()


def in_parts(raw, size=1 << 14):
    """Return parts that are packed one by one, the first of a comment alone."""
    parts = [b"# from to\n"]
    parts += [raw[at : at + size] for at in range(0, len(raw), size)]
    return b"".join(map(gzip.compress, parts))


BANNER = "%%MatrixMarket matrix coordinate integer general"
FILES = {
    "edges": ("edges", listed(), len(ENDS)),
    "names": ("edges", listed(",", "node"), len(ENDS)),
    "weights": ("edges", listed(weight=" 0.5"), len(ENDS)),
    "packed": ("edges", gzip.compress(listed()), len(ENDS)),
    "parts": ("edges", in_parts(listed()), len(ENDS)),
    "pairs": ("npz", archive(edges=ENDS), len(ENDS)),
    "saved": ("npz", saved(), MATRIX.nnz),
    "metis": ("metis", metis(), MATRIX.nnz),
    "market": ("matrix_market", matrix(BANNER, 1), MATRIX.nnz),
    "smat": ("smat", matrix("", 0), MATRIX.nnz),
    "gml": ("gml", gml(), len(ENDS)),
}


def content_of(raw):
    return np.frombuffer(raw, np.uint8)


@pytest.mark.parametrize("name", FILES)
def test_entries_are_told_from_the_beginning(name):
    file_format, raw, count = FILES[name]
    found = estimated_entries(file_format, content_of(raw))
    assert found == pytest.approx(count, rel=0.15)


def test_weights_and_names_take_memory_beside():
    sizes = {
        name: reading_bytes("edges", columns, content_of(FILES[name][1]))
        for name, columns in (("edges", None), ("weights", (1, 2, 3)), ("names", None))
    }
    assert sizes["edges"] < sizes["weights"] < sizes["names"]


def test_what_is_no_such_file_is_told():
    with pytest.raises(ValueError, match="archive"):
        estimated_entries("npz", content_of(listed()))
    with pytest.raises(ValueError, match="archive"):
        estimated_entries("npz", content_of(archive(other=ENDS)))
    with pytest.raises(InputError, match="rows, columns and entries"):
        estimated_entries("smat", content_of(listed()))


@pytest.mark.parametrize("raw", [b"", b"\x1f\x8bnone", b"1\n"])
def test_broken_files_take_a_block_until_they_are_refused(raw):
    kind = find_kind("data.graph")
    params = kind.params.model_validate({"path": "x.txt"})
    member = Member(params, {}, files={"path": {"bytes": content_of(raw)}})
    assert find("data.graph").member_bytes(member) == 1 << 20


def test_the_largest_component_is_cut_out_beside():
    kind, files = find_kind("data.graph"), {"path": {"bytes": content_of(listed())}}
    whole, largest = (
        find("data.graph").member_bytes(
            Member(
                kind.params.model_validate({"path": "x.txt", "component": component}),
                {},
                files=files,
            )
        )
        for component in ("all", "largest")
    )
    assert whole < largest
