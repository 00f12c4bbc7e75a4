"""Code that several rooms share: names of files and variables, limits, console output, TLS. It imports only `messages`."""
