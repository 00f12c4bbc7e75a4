"""The agent: the one daemon of a node. It starts, watches, stops and reports workers; it decides nothing."""
