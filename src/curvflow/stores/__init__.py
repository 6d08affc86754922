"""WHERE results live."""
