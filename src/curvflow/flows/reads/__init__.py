"""What a user's code reads while it runs: files, folders, variables, and chance."""
