"""Generations: their members, how a rank joins the next one, and what members report to each other then."""
