"""Detectors: each turns something seen into evidence against a worker, a node or a part of it. Others decide what follows from it."""
