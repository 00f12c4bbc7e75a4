"""Schedulers: who starts what leads a job and what serves its nodes.

Built in are this machine, Slurm and Kubernetes; other packages may add others.
"""
