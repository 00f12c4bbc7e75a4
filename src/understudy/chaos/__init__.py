"""Faults for running jobs: a registry of them, plans of when and where, and what carries a plan out. None of it imports torch."""
