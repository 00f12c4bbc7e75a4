"""Transport between the workers of a generation: its store, the runtime's own connections, and the process groups of the script."""
