"""Integrations for objects of training frameworks, such as an Accelerator: the objects that they contain are registered instead, and their
loaders continue at the job's position."""
