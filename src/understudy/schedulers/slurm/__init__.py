"""Slurm, by its commands: where a step runs, what Slurm knows of its nodes, and what it is told of them."""
