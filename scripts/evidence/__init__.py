"""Results as JSON in `docs/evidence`, and the pages that are generated from them: see `__main__.py`."""
