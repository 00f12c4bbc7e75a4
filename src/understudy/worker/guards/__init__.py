"""Guards: they notice what a script does that a redo or a newcomer could not reproduce, when it does it."""
