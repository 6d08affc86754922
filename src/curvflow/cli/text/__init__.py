"""Text that commands print: pages, plans, tables, progress."""
