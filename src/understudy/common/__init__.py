"""What several rooms need and none of them owns: names that processes agree on, views, bounds, trust. Of ours it imports only `messages`."""
