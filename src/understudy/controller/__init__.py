"""The controller on Kubernetes: it makes the pods of each `UnderstudyJob` and the objects that they need. Orchestrators manage the pods."""
