"""A worker as a process: its line to the agent, the template that it is forked from, its end."""
