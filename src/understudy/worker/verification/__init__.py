"""Verification: compare ranks that should have equal state, a redo with the interrupted step, and the collectives of all ranks with each
other.
"""
