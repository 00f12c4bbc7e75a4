"""Drills: a spare computes a rank's next step beside it, twice, and everything is compared."""
