"""Recovery: what a donor gives, and how a newcomer finds its place in the script, takes over the state, and proves it."""
