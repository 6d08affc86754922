"""The report: a study and its results as one self-contained page of HTML."""
