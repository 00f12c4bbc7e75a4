"""Inject faults into running jobs: a registry of faults, plans that say when and where, and the code that executes a plan. None of it
imports torch.
"""
