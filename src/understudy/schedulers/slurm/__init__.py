"""Slurm, through its commands: the step of a process, Slurm's information about its nodes, and requests to it."""
