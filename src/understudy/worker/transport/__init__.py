"""How workers of one generation reach each other: its store, the runtime's own connections, and the groups of the script."""
