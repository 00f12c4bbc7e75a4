"""The faults, by what they need: small functions, and a table of them at the end of each module."""
