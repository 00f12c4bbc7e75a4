"""Code that several rooms share: names that processes agree on, views, bounds, trust. It imports only `messages`."""
