"""Guards: detect, at the call, actions of a script that a redo or a newcomer could not reproduce."""
