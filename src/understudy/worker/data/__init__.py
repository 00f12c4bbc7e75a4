"""The data of a script: its loops and loaders, iterators that it advances by hand, and the results of its transactions."""
