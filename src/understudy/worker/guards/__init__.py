"""Guards: what a script does that a redo or a newcomer could not bear, noticed when it does it."""
