"""The controller on Kubernetes: for each `UnderstudyJob` it makes pods, and what they need. What pods are for, orchestrators decide."""
