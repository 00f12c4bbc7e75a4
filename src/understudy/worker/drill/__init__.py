"""Drills: a spare computes a rank's next step in parallel with it, twice, and everything is compared."""
