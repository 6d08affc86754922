"""Networks of sequences, one file per model."""
