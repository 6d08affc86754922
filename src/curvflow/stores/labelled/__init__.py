"""Results as labelled arrays, and draws of other packages."""
