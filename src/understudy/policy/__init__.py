"""Decide by an operator's rules which action follows from evidence."""
