"""A worker as a process: its connection to the agent, the template that it is forked from, its end."""
