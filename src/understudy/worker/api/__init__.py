"""The API for training scripts."""
