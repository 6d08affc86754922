"""Why nodes must run, back to the root causes, and how long it will take."""
