"""Records of results: receipts, rows, tables and comparisons."""
