"""Connect Understudy's processes: messages on sockets, and the memory page on which a worker reports its progress."""
