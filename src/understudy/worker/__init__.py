"""What runs inside a training process: the only part of Understudy that uses torch."""
