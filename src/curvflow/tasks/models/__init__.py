"""Models as functions of a flat parameter vector, one file per model."""
