"""What a script can reach and changes while it trains, though it registers none of it (the census).

roots       where a look begins: globals of the script's modules, its classes, locals of the frames that call, closures of transactions
leaves      what can be moved: plain values, tensors, arrays, generators of random numbers; encoded, and set in place
walk        a bounded look at everything that hangs on the roots and can be carried over
reach       what hangs on that and cannot: compared, so that a change is known
readers     one object of any kind: its own mark, and what hangs on it
settings    switches of torch and numpy, and the environment
foreign     globals of installed packages that the script names
baseline    what there was when the set-up was over; sketches tells most of it without encoding it
owners      attributes and containers that an attempt may change for the first time: put back by a redo
attempted   the same of tensors
carried     names of a loop that are written anew in each iteration before they are read: those need not be carried over
left_names  names that a loop has set and the script reads behind it
running     what counts on beside a loop of the job in a `for`, where nobody can see it
stores      where in the source a thing is stored
naming      what is told: names, lines, and the line that would help
census      what has changed since the set-up, as entries like registered values; what cannot be followed, to be told
"""
