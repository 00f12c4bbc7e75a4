"""A step: what a rank does in a transaction and between two, and the parts of a rank put together."""
