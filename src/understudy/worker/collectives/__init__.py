"""Collectives as a script issues them: where they are intercepted, recorded, answered from a record, and timed."""
