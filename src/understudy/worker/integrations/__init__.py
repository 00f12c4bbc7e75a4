"""Objects of training frameworks that a script registers whole: what they hold is registered in their place, and their loaders
continue at the job's position."""
