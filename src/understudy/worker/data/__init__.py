"""Data of a script: its loops and loaders, iterators that it moves by hand, and what its transactions returned."""
