"""Kubernetes: jobs are `UnderstudyJob` resources, nodes are pods."""
