"""Results of a study, read, checked and exported."""
