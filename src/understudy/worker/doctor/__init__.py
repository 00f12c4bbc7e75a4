"""What of torch's insides the worker relies on, tried out one by one, and what else a job needs of a machine."""
