"""The controller on Kubernetes: it makes the pods of each `UnderstudyJob`, and what they need. What for, their orchestrators say."""
