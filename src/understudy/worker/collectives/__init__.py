"""Collectives as a script issues them: intercepted, recorded, answered from a record, and timed."""
