"""Mutation testing of the pure parts: changes of meaning, one at a time, and whether the fast tests notice. See `__main__.py`."""
