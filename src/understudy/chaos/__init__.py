"""Inject faults into running jobs: a registry of faults, plans with times and places, and the code that executes a plan. None of it
imports torch.
"""
