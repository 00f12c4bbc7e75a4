"""Connect our processes: messages on sockets, and the page through which a worker shows its progress."""
