"""Shared code that several rooms need and none of them owns: names that processes agree on, views, bounds, trust. It imports only `messages`."""
