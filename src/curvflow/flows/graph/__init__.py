"""The graph of a study: nodes, tiles, jobs and files."""
