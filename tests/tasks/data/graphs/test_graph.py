"""Graphs of files, against dense twins."""

import gzip
import io
from dataclasses import dataclass, replace
from itertools import pairwise, product

import numpy as np
import pytest
import scipy.io
from pydantic import ValidationError
from scipy import sparse
from scipy.sparse import csgraph

from curvflow.errors import InputError, StudyError
from curvflow.flows.graph.open_study import open_study
from curvflow.flows.run.run import run_study
from curvflow.schemas.kinds.data.graphs.graph import GraphParams, check
from curvflow.stores.memory import MemoryStore
from curvflow.tasks.data.graphs.graph import read
from tests.tasks.toys import assert_declared, compute, member

KIND = "data.graph"
SIZE = 12


def example_files(folder):
    friends = ["from,to,weight", "ann,ben,2", "ben,cleo,1", "dan,eve,1", "cleo,ann,0.5"]
    (folder / "friends.csv").write_text("\n".join(friends), encoding="utf-8")


def read_graph(content, path="a.txt", **params):
    node = member(KIND, {"path": path, **params})
    if isinstance(content, str):
        content = content.encode()
    files = {"path": {"bytes": np.frombuffer(content, np.uint8)}}
    check(node.params, files)
    (outcome,) = compute(KIND, [replace(node, files=files)])
    assert_declared(KIND, outcome)
    return outcome.arrays


def dense(arrays):
    """Return the matrix of a graph, once its rows are found to be in order."""
    indptr, indices, weights = (arrays[n] for n in ("indptr", "indices", "weights"))
    values = weights if len(weights) else np.ones(len(indices))
    size = int(arrays["size"])
    matrix = sparse.csr_array((values, indices, indptr), shape=(size, size))
    assert matrix.has_canonical_format
    assert not len(weights) or (weights != 1).any()
    return matrix.toarray()


@dataclass(frozen=True)
class Listed:
    """Edges as they are listed, with loops, repetitions and lonely nodes."""

    sources: np.ndarray
    targets: np.ndarray
    weights: np.ndarray

    def __iter__(self):
        return zip(
            self.sources.tolist(),
            self.targets.tolist(),
            self.weights.tolist(),
            strict=True,
        )

    def matrix(self, *, weighted=True, repeated="sum"):
        """The entries of each ordered pair, by a loop."""
        found = np.zeros((SIZE, SIZE))
        for i, j, w in self:
            weight = w if weighted else 1
            old = found[i, j]
            found[i, j] = old + weight if repeated == "sum" else max(old, weight)
        return found


def random_edges(seed):
    rng = np.random.default_rng(seed)
    ends = rng.integers(0, SIZE - 2, size=(2, 40))  # the last two have no edge
    return Listed(*ends, rng.integers(1, 9, size=40) / 4)


EDGES = random_edges(0)


def undirected(matrix, loops="keep"):
    whole = np.maximum(matrix, matrix.T)
    return whole if loops == "keep" else whole - np.diag(np.diag(whole))


def compact(matrix):
    """Drop the nodes that no edge of a list names."""
    named = np.union1d(EDGES.sources, EDGES.targets)
    return matrix[np.ix_(named, named)]


def lines(separator, *, weighted, header="", shift=0):
    cells = [
        (str(i + shift), str(j + shift), repr(w))[: 3 if weighted else 2]
        for i, j, w in EDGES
    ]
    return header + "".join(separator.join(row) + "\n" for row in cells)


CASES = list(product(["sum", "once"], ["drop", "keep"], [True, False]))


@pytest.mark.parametrize(("repeated", "loops", "weighted"), CASES)
@pytest.mark.parametrize("separator", [" ", "\t", ",", " , ", "  \t"], ids=repr)
def test_an_edge_list_has_the_rows_of_its_dense_twin(
    separator, repeated, loops, weighted
):
    text = lines(separator, weighted=weighted, header="# some words\n\n% and more\n")
    arrays = read_graph(
        text.replace("\n", "\r\n"),
        columns=[1, 2, 3] if weighted else None,
        multi_edges=repeated,
        self_loops=loops,
    )
    twin = undirected(EDGES.matrix(weighted=weighted, repeated=repeated), loops)
    np.testing.assert_array_equal(dense(arrays), compact(twin))
    assert int(arrays["num_edges"]) == np.count_nonzero(np.triu(twin))


def market(matrix, **more):
    file = io.BytesIO()
    scipy.io.mmwrite(file, sparse.coo_array(matrix), **more)
    return file.getvalue()


def smat(matrix):
    rows, columns = np.nonzero(matrix)
    entries = [f"{i} {j} {matrix[i, j]}" for i, j in zip(rows, columns, strict=True)]
    return "\n".join([f"{SIZE} {SIZE} {len(entries)}", *entries])


def metis(matrix, fmt="001"):
    """Write neighbours, with two weights and a size of each node where asked."""
    loops = np.count_nonzero(np.diag(matrix))
    count = (np.count_nonzero(matrix) + loops) // 2
    own = ("5 " if fmt[0] == "1" else "") + ("7 8 " if fmt[1] == "1" else "")
    text = f"% graph\n{SIZE} {count} {fmt} 2\n"
    for row in matrix:
        pairs = [(j + 1, row[j]) for j in np.flatnonzero(row)]
        weighted = [f"{j} {w}" if fmt[2] == "1" else f"{j}" for j, w in pairs]
        text += own + " ".join(weighted) + "\n% between\n"
    return text


def gml(*, weighted, directed):
    nodes = "".join(f'  node [ id {n} label "n&amp;{n}" ]\n' for n in range(SIZE))
    edges = "".join(
        f"  edge [ source {i} target {j} "
        + (f"weight {w} " if weighted else "")
        + "graphics [ width 1 weight 9 ] ]\n"
        for i, j, w in EDGES
    )
    head = '# by hand\nCreator "me [1]"\ngraph\n[\n'
    return f"{head}  directed {int(directed)}\n{nodes}{edges}]\n"


def npz(save, *values, **arrays):
    file = io.BytesIO()
    save(file, *values, **arrays)
    return file.getvalue()


TWIN = EDGES.matrix()
WHOLE = undirected(TWIN)
LOWER = sparse.csr_array(WHOLE)
FILES = {
    "general.mtx": market(TWIN, symmetry="general"),
    "symmetric.mtx": market(WHOLE, symmetry="symmetric"),
    "a.smat": smat(TWIN),
    "a.graph": metis(WHOLE),
    "b.graph": metis(WHOLE, "111"),
    "a.gml": gml(weighted=True, directed=True),
    "csr.npz": npz(sparse.save_npz, sparse.csr_array(TWIN)),
    "csc.npz": npz(sparse.save_npz, sparse.csc_array(TWIN)),
    "coo.npz": npz(sparse.save_npz, sparse.coo_array(TWIN)),
    "rows.npz": npz(
        np.savez, indptr=LOWER.indptr, indices=LOWER.indices, weights=LOWER.data
    ),
}
FILES |= {
    f"{name}.gz": gzip.compress(FILES[name].encode())
    for name in ("a.smat", "b.graph", "a.gml")
}


@pytest.mark.parametrize("loops", ["drop", "keep"])
@pytest.mark.parametrize("name", FILES)
def test_a_file_of_each_format_has_the_rows_of_its_dense_twin(name, loops):
    arrays = read_graph(FILES[name], name, self_loops=loops)
    np.testing.assert_array_equal(dense(arrays), undirected(TWIN, loops))


PLAIN = (WHOLE > 0).astype(int)
UNWEIGHTED = {
    "a.mtx": market(PLAIN, field="pattern", symmetry="general"),
    "b.mtx": market(PLAIN, field="integer", symmetry="symmetric"),
    "a.graph": metis(PLAIN, "000"),
    "b.graph": metis(PLAIN, "110"),
    "a.npz": npz(
        np.savez_compressed, indptr=LOWER.indptr, indices=LOWER.indices.astype("u2")
    ),
    "bool.npz": npz(sparse.save_npz, sparse.csr_array(WHOLE > 0)),
}


@pytest.mark.parametrize("name", UNWEIGHTED)
def test_a_file_without_weights_gives_none(name):
    arrays = read_graph(UNWEIGHTED[name], name, self_loops="keep", directed="refuse")
    assert not len(arrays["weights"])
    np.testing.assert_array_equal(dense(arrays), PLAIN)


def test_edges_of_an_undirected_gml_that_are_repeated_either_way_are_summed():
    arrays = read_graph(gml(weighted=False, directed=False), "a.gml")
    twin = EDGES.matrix(weighted=False)
    twin = twin + twin.T - np.diag(np.diag(twin))
    np.testing.assert_array_equal(dense(arrays), twin - np.diag(np.diag(twin)))
    assert arrays["names"].tolist() == [f"n&{n}" for n in range(SIZE)]


def test_pairs_of_ends_in_an_archive_are_an_edge_list():
    pairs = np.stack([EDGES.sources, EDGES.targets], axis=1)
    content = npz(np.savez, edges=pairs * 10**12, weights=EDGES.weights)
    arrays = read_graph(content, "a.npz", self_loops="keep")
    np.testing.assert_array_equal(dense(arrays), compact(undirected(TWIN)))
    np.testing.assert_array_equal(arrays["ids"], np.unique(pairs) * 10**12)


@pytest.mark.parametrize("size", [1, 7, 64, 1000, 10**6])
@pytest.mark.parametrize("name", [n for n in FILES if ".npz" not in n])
def test_blocks_of_any_size_give_the_same(name, size):
    content = FILES[name]
    raw = content.encode() if isinstance(content, str) else content
    params, content = GraphParams(path=name), np.frombuffer(raw, np.uint8)
    whole, parts = read(params, content), read(params, content, size)
    for field in ("names", "sources", "targets", "weights"):
        np.testing.assert_array_equal(getattr(whole, field), getattr(parts, field))


NAMED = [
    ("1 2\n2 3\n", "ids", [1, 2, 3]),
    ("0 1\n5 900\n", "ids", [0, 1, 5, 900]),
    ("-3 10000000000000\n7 -3\n", "ids", [-3, 7, 10**13]),
    ("b a\nc a\n", "names", ["a", "b", "c"]),
    ("1 2\n2 x\n007 7\n", "names", ["007", "1", "2", "7", "x"]),
    ("Zürich,New York\nNew York,Oslo\n", "names", ["New York", "Oslo", "Zürich"]),
    ('"a, b",c\n"say ""no""",c\n', "names", ["a, b", "c", 'say "no"']),
    ("12345678901234567890 1\n", "names", ["1", "12345678901234567890"]),
    ("FromNodeId\tToNodeId\r\n4\t2\r\n", "ids", [2, 4]),
    ("source,target\na,b\n", "names", ["a", "b"]),
    ("\ufeff3 4\n", "ids", [3, 4]),
    ("3 4", "ids", [3, 4]),
    ("3 4\n9 9\n", "ids", [3, 4, 9]),
]


@pytest.mark.parametrize("size", [3, 10**6])
@pytest.mark.parametrize(("text", "field", "expected"), NAMED, ids=repr)
def test_names_of_nodes_are_kept(text, field, expected, size):
    arrays = read_graph(text)
    assert arrays[field].tolist() == expected
    assert not len(arrays["ids" if field == "names" else "names"])
    params = GraphParams(path="a")
    entries = read(params, np.frombuffer(text.encode(), np.uint8), size)
    assert entries.names.tolist() == expected


def test_columns_are_found_by_their_names_or_numbers():
    text = "time,to,cost,from\n5,2,0.5,1\n6,3,2.5,1\n"
    for columns in (["from", "to", "cost"], [4, 2, 3]):
        arrays = read_graph(text, columns=columns)
        assert dense(arrays).tolist() == [[0, 0.5, 2.5], [0.5, 0, 0], [2.5, 0, 0]]
    weighted = "source target weight time\n1 2 4.5 1\n"
    assert read_graph(weighted)["weights"].tolist() == [4.5, 4.5]
    with_attributes = "1 2 {}\n2 3 {}\n"  # as networkx writes them
    assert int(read_graph(with_attributes, columns=[1, 2])["num_edges"]) == 2


def test_weights_are_the_numbers_that_python_reads():
    rng = np.random.default_rng(0)
    drawn = rng.random(300) * 10.0 ** rng.integers(-9, 12, size=300)
    forms = ["{:.3f}9", "{!r}", "{:.6g}", "{:.0f}.", "{:e}", "0{:.9f}1"]
    texts = [forms[n % 6].format(w) for n, w in enumerate(drawn.tolist(), start=1)]
    texts += ["1", "007", ".5", "5.", "+2", "999999999999.99", "0.00000000000001"]
    texts = [text for text in texts if float(text) > 0]
    content = "".join(f"{n} x {text}\n" for n, text in enumerate(texts))
    params = GraphParams(path="a", columns=(1, 2, 3))
    entries = read(params, np.frombuffer(content.encode(), np.uint8))
    assert entries.weights is not None
    assert entries.weights.tolist() == [float(text) for text in texts]


@pytest.mark.parametrize("seed", range(3))
def test_the_largest_component_is_scipy_s(seed):
    rng = np.random.default_rng(seed)
    pairs = rng.integers(0, 60, size=(40, 2))
    text = "".join(f"{i} {j}\n" for i, j in pairs.tolist())
    whole = read_graph(text)
    largest = read_graph(text, component="largest")
    _, labels = csgraph.connected_components(dense(whole))
    nodes = np.flatnonzero(labels == np.bincount(labels).argmax())
    assert 2 < len(nodes) < len(labels)
    np.testing.assert_array_equal(dense(largest), dense(whole)[np.ix_(nodes, nodes)])
    np.testing.assert_array_equal(largest["ids"], whole["ids"][nodes])


ACCEPTED = [
    ("1 2\n2 3\n", "a.txt"),
    ("1 2\n2 1\n3 2\n2 3\n", "a.txt"),
    ("3 3 2\n0 1 2\n1 0 2\n", "a.smat"),
    ("graph [ node [ id 1 ] node [ id 2 ] edge [ source 1 target 2 ] ]", "a.gml"),
]


@pytest.mark.parametrize(("text", "name"), ACCEPTED)
def test_edges_of_no_direction_pass_where_directions_are_refused(text, name):
    refused = read_graph(text, name, directed="refuse")
    np.testing.assert_array_equal(dense(refused), dense(read_graph(text, name)))


DIRECTED = [
    ("1 2\n2 1\n2 3\n", "a.txt", "between 2 and 3"),
    ("1 2 4\n2 1 5\n", "a.txt", "between 1 and 2"),
    ("3 3 2\n0 1 2\n1 2 2\n", "a.smat", "between 0 and 1"),
    ("graph [ directed 1 node [ id 1 ] edge [ source 1 target 1 ] ]", "a.gml", "says"),
]


@pytest.mark.parametrize(("text", "name", "message"), DIRECTED)
def test_directed_files_are_refused_where_that_is_asked_for(text, name, message):
    columns = [1, 2, 3] if text.startswith("1 2 4") else None
    with pytest.raises(InputError, match=f"directed: .*{message}"):
        read_graph(text, name, columns=columns, directed="refuse")


HEAD = "%%MatrixMarket matrix coordinate real symmetric\n3 3 1\n"
BROKEN = [
    ("1 2\n3\n", "a.txt", "2 cells in line 2, got 1"),
    ("# x\n1 2\n\n3 4 5\n", "a.txt", "2 cells in line 4, got 3"),
    ("1 2 3\n", "a.txt", "columns: expected the columns of the two ends"),
    ("1\n2\n", "a.txt", "two ends of an edge in line 1"),
    ("# nothing\n", "a.txt", "comments alone"),
    ("", "a.txt", "empty file"),
    ("source target\n", "a.txt", "below the names"),
    ("1 1\n2 2\n", "a.txt", "graph with edges, got loops alone"),
    ("1 2\n3 \0\n", "a.txt", "the byte 0 in line 2"),
    ("1 2\n3 4\r5 6\n", "a.txt", "a carriage return within line 2"),
    ("from,to,weight\n" + "1,2,1e308\n" * 2, "a.txt", "weights of finite sums"),
    ("1,2\n,3\n", "a.txt", "name of a node"),
    ('1,2\n"3,4\n', "a.csv", "CSV file in line 2"),
    ("a " + "b" * 300, "a.txt", "1 to 200 bytes"),
    (b"\xff x\n", "a.txt", "UTF-8, got the byte 0xff"),
    (b"\x1f\x8b\x08broken", "a.gz", "a .gz file"),
    (gzip.compress(b"1 2\n" * 99, mtime=0)[:-9], "a.gz", "a .gz file"),
    (HEAD, "a.txt", "Set format: matrix_market"),
    (HEAD + "1 1 3\n2 1 1\n", "a.mtx", "1 entries, as line 2 says, got 2"),
    (HEAD + "4 1 1\n", "a.mtx", "a node from 1 to 3, got '4' in line 3"),
    (HEAD + "0 1 1\n", "a.mtx", "a node from 1 to 3, got '0' in line 3"),
    (HEAD + "1 2 1\n", "a.mtx", "below its diagonal, got 1 2 in line 3"),
    (HEAD + "2 1 nan\n", "a.mtx", "positive weights, got nan in line 3"),
    (HEAD + "2 1 0\n", "a.mtx", "positive weights, got 0 in line 3"),
    (HEAD + "2 1 -2.5\n", "a.mtx", "positive weights, got -2.5 in line 3"),
    (HEAD + "2 1 inf\n", "a.mtx", "positive weights, got inf in line 3"),
    (HEAD + "2 1 1_0\n", "a.mtx", "a number as weight, got '1_0' in line 3"),
    (HEAD + "2 1 .\n", "a.mtx", "a number as weight, got '.' in line 3"),
    (HEAD + "2 1 1.2.3\n", "a.mtx", "a number as weight, got '1.2.3' in line 3"),
    (HEAD.replace("3 3", "3 4") + "2 1 1\n", "a.mtx", "a square matrix"),
    (HEAD.replace("real", "complex"), "a.mtx", "pattern, real or integer"),
    ("2 2\n0 1 1\n", "a.smat", "rows, columns and entries in line 1"),
    ("2 2 1\n0 2 1\n", "a.smat", "a node from 0 to 1, got '2' in line 2"),
    ("3 1\n2\n1\n", "a.graph", "a line for each of 3 nodes, got 2"),
    ("2 1\n2\n1\n1\n", "a.graph", "got another in line 4"),
    ("2 1\n3\n1\n", "a.graph", "a node from 1 to 2, got '3' in line 2"),
    ("2 2\n2\n1\n", "a.graph", "2 edges, each at both ends"),
    ("3 1\n2\n3\n\n", "a.graph", "at both its nodes"),
    ("2 1 1\n2 5\n1 4\n", "a.graph", "at both its nodes"),
    ("2 1 1\n2\n1 4\n", "a.graph", "in line 2, got 1 numbers"),
    ("2 1 12\n2\n1\n", "a.graph", "code of the format"),
    ("node [ id 1 ]", "a.gml", "'graph \\['"),
    ("graph [ node [ id 1 ]", "a.gml", "open graph"),
    ("graph [ node [ id 1 ]\nnode [ id 1 ] ]", "a.gml", "distinct ids in line 2"),
    ("graph [\nedge [ source 1 target 2 ] ]", "a.gml", "id of a node in line 2"),
    ("graph [\n] ]", "a.gml", "a key in line 2"),
    ("graph [ node [ id one ] ]", "a.gml", "an integer as id"),
    ("graph [ label \n]", "a.gml", "a value of label"),
    (b"no archive", "a.npz", "an .npz file"),
    (b"PK broken", "a.npz", "an .npz file"),
    (npz(np.savez, a=np.eye(2)), "a.npz", "the arrays indptr"),
    (npz(np.savez, edges=np.eye(2)), "a.npz", "integers of shape"),
    (npz(np.savez, edges=np.array([{}])), "a.npz", "an .npz file"),
    (npz(np.savez, indptr=[0, 1], indices=[7]), "a.npz", "node from 0 to 0"),
    (npz(np.savez, indptr=[0, 5], indices=[0]), "a.npz", "that rises from 0"),
    (npz(np.savez, indptr=[0, 1, 2], indices=[1, 0], weights=[1, -1]), "a.npz", "-1"),
    (npz(np.savez, indptr=[0, 1, 2], indices=[1, 0], weights=[1]), "a.npz", "weight"),
    (npz(sparse.save_npz, sparse.csr_array(np.ones((2, 3)))), "a.npz", "square"),
    (npz(sparse.save_npz, sparse.dia_array(np.eye(3))), "a.npz", "csr, csc or coo"),
]


@pytest.mark.parametrize(("text", "name", "message"), BROKEN)
def test_a_broken_file_is_refused_in_one_line(text, name, message):
    with pytest.raises(InputError, match=message) as error:
        read_graph(text, name)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("name", [n for n in FILES if isinstance(FILES[n], str)])
def test_a_packed_file_may_have_several_parts(name):
    rng, raw = np.random.default_rng(len(name)), FILES[name].encode()
    for ends in ("\n", "\r\n", "\r\r\n"):
        content = raw.replace(b"\n", ends.encode())
        for _ in range(5):
            cuts = [0, *sorted(rng.integers(0, len(content), 4).tolist()), len(content)]
            parts = (content[i:j] for i, j in pairwise(cuts))
            packed = b"".join(map(gzip.compress, parts)) + b"\0" * int(rng.integers(3))
            found = dense(read_graph(packed, f"{name}.gz"))
            np.testing.assert_array_equal(found, undirected(TWIN, "drop"))


EARLY = [
    ("# x\na b 1\nb c -2\n", "a.txt", [1, 2, 3], "got -2 in line 3. Remove"),
    ("from,to,weight\n\na,b,1\nb,c,nan\n", "a.csv", None, "got nan in line 4"),
    (HEAD + "% x\n2 1 0\n", "a.mtx", None, "got 0 in line 4"),
    ("3 3 2\n0 1 2\n1 0 inf\n", "a.smat", None, "got inf in line 3"),
    ("a;b\nb;c\n", "a.txt", None, "Part cells by commas"),
]


@pytest.mark.parametrize(("text", "name", "columns", "message"), EARLY)
def test_weights_of_the_first_lines_are_refused_while_planning(
    text, name, columns, message
):
    params = GraphParams(path=name, columns=columns)
    content = np.frombuffer(text.encode(), np.uint8)
    with pytest.raises(InputError, match=message):
        check(params, {"path": {"bytes": content}})


def damaged(content, rng):
    """Change, take out or repeat some bytes."""
    raw = bytearray(content)
    for _ in range(int(rng.integers(1, 4))):
        at, width = int(rng.integers(len(raw))), int(rng.integers(1, 12))
        what = rng.integers(4)
        if what == 0:
            raw[at] = int(rng.choice(list(b'0123 -\n\t,."[]#%_ex\xff')))
        elif what == 1:
            del raw[at : at + width]
        elif what == 2:
            raw[at:at] = raw[at : at + width]
        else:
            del raw[at:]
        raw = raw or bytearray(b"1")
    return bytes(raw)


SEEN = {
    **FILES,
    "a.txt": lines(" ", weighted=True),
    "a.csv": lines(",", weighted=True, header='"source",target,weight\n'),
}


@pytest.mark.parametrize("name", SEEN)
def test_a_file_that_is_damaged_anyhow_is_read_or_refused(name):
    content, rng = SEEN[name], np.random.default_rng(len(name))
    raw = content.encode() if isinstance(content, str) else content
    columns = [1, 2, 3] if name == "a.txt" else None
    refused = []
    for _ in range(60):
        try:
            arrays = read_graph(damaged(raw, rng), name, columns=columns)
        except InputError as error:
            refused.append(str(error))
        else:
            assert (arrays["indices"] < arrays["size"]).all()
    assert refused
    assert not [message for message in refused if "\n" in message]


def test_columns_of_what_has_none_are_refused():
    with pytest.raises(ValidationError, match="columns cannot be combined with format"):
        member(KIND, {"path": "a.mtx", "columns": [1, 2]})
    with pytest.raises(ValidationError, match="distinct columns"):
        member(KIND, {"path": "a.csv", "columns": [1, 1]})


STUDY = """
study: friends
stages:
  friends: {use: data.graph, path: FILE}
"""


def run(tmp_path, name, content, more=""):
    (tmp_path / name).write_bytes(content)
    path = tmp_path / "study.yaml"
    path.write_text(STUDY.replace("FILE", name + more))
    opened = open_study(path, store="memory:")
    store = MemoryStore()
    run_study(opened.study, store, opened.files)
    return [receipt.digest for receipt in store.index().receipts.values()]


@pytest.mark.parametrize(
    ("params", "message"),
    [
        ({}, "expected a path, or the name of a published graph"),
        ({"name": "karate", "path": "a.gml"}, "'path' cannot be combined with 'name'"),
        ({"name": "karate", "columns": [1, 2]}, "'columns' cannot be combined with"),
        ({"path": "a.gml", "folder": "b"}, "'folder' cannot be combined with 'path'"),
        ({"name": "karat"}, "karate"),
    ],
)
def test_a_file_is_named_once(params, message):
    with pytest.raises(ValidationError, match=message):
        member(KIND, params)


def test_the_form_of_a_published_file_is_known():
    params = GraphParams(name="collegemsg")
    assert (params.format, params.columns) == ("edges", (1, 2))
    assert GraphParams(**params.model_dump()) == params


def test_a_file_of_another_form_is_refused_while_planning(tmp_path):
    with pytest.raises(StudyError, match=r"study.yaml:4.*begins with '%%Matrix"):
        run(tmp_path, "a.mtx", b"1 2\n")


@pytest.mark.parametrize("name", ["a.graph.gz", "rows.npz"])
def test_a_file_that_stays_on_disk_gives_the_same_graph(tmp_path, name):
    content = FILES[name] if name in FILES else gzip.compress(FILES["a.graph"].encode())
    (digest,) = run(tmp_path, name, content)
    assert run(tmp_path, name, content, ", rows_above: 0") == [digest]
