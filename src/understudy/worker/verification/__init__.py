"""Verification: whether ranks that should be alike are, whether a redo is what it redoes, and whether all ranks issue the same
collectives."""
