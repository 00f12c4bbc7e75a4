"""What workers send each other, as bytes: messages, values with tensors, digests. Knows no state and no network."""
