"""Decide what follows from evidence, by an operator's rules."""
