"""Rails: keep what a job sends over plain TCP going when one of the networks between its hosts fails."""
