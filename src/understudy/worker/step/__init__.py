"""The step: what a rank does in a transaction and between two transactions, and the assembly of a rank from its parts."""
