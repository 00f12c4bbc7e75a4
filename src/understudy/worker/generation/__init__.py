"""Generations: who is in one, how a rank joins the next, and what members tell each other then."""
