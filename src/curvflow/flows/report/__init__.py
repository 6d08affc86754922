"""One page that tells of a study: what is on it, how it is written and served."""
