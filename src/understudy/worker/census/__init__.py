"""The census: find state that a script changes during training and has not registered.

roots       where a walk begins: globals of the script's modules, its classes, locals of the calling frames, closures of transactions
leaves      what can be moved: plain values, tensors, arrays, generators of random numbers; encoded, and set in place
walk        a bounded walk over everything that is reachable from the roots and can be carried over
reach       what is reachable from that and cannot: compared, so that a change is known
readers     one object of any kind: its own mark, and its parts
settings    switches of torch and numpy, and the environment
foreign     globals of installed packages that the script names
baseline    the values at the end of the set-up; sketches recognizes most of them without encoding
owners      attributes and containers that an attempt may change for the first time: restored by a redo
attempted   the same of tensors
carried     names of a loop that each iteration sets before it reads them: those need not be carried over
bindings    names that are bound to another object than at the last vote, and the time that walks may take
block_names names that the block of `job.attempts()` reads, sets and leaves
left_names  names that a loop has set and the script reads after it
running     counters in the `for` of a loop of the job, which cannot be read
stores      where in the source a thing is stored
naming      the notices: names, lines, and the line that would help
census      what has changed since the set-up, as entries like registered values; what cannot be followed, to be reported
"""
