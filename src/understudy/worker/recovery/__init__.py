"""Recovery: what a donor sends, how a newcomer gets to its place in the script, receives the state, and shows that it is right."""
