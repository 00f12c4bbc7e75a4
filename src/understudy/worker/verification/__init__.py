"""Verification: whether ranks that should be alike are, whether a redo equals the interrupted step, and whether all ranks issue the same
collectives.
"""
