"""Recovery: what a donor gives, and how a newcomer finds its place in the script, takes the state over, and proves it."""
