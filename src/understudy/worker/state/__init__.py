"""What a rank holds: registered state, its streams, its copies, and where that of a lost rank comes from. Knows no network."""
