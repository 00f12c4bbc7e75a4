"""The state of a rank: registered objects, streams, buddy copies, and the sources of a lost rank's state. Uses no network."""
