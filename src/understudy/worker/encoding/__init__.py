"""Encodings of what workers send each other: messages, values with tensors, digests. Uses no state and no network."""
