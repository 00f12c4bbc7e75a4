"""Generations: their members, how a rank joins the next one, and the reports that members exchange when they join."""
