"""Detectors: each turns one kind of evidence into a taint or a loss. Pure judgement; the service feeds them."""
