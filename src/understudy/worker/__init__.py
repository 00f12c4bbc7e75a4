"""The part of Understudy that runs inside a training process, and the only one that uses torch."""
