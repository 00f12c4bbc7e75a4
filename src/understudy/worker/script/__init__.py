"""What is known of the user's script: its loops and loaders, the collectives of its set-up, what it does between transactions."""
