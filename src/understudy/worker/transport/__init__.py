"""How workers of one generation reach each other: its store, the connections of the runtime itself, and the groups of the script."""
