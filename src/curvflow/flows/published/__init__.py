"""Published data sets: their files found, fetched if asked, verified and decoded."""
