"""Schedulers start orchestrators and the agents of nodes.

Built in are this machine, Slurm and Kubernetes; other packages may add others.
"""
