"""The reference pages of the site, made from the registry, the commands, docstrings."""
