"""Detectors: each reports evidence against a worker, a node or a part of it. Others decide what follows from the evidence."""
