"""Messages about state that a script changes while it trains and has not registered."""

from __future__ import annotations

from understudy.messages.base import Message

# -- notices -------------------------------------------------------------------------------------------------------------------

COUNTER_MOVES = Message(
    "US1401",
    "{names} is an iterator that advances while the script trains: on a newcomer it restarts. Count with `state = job.state({name}=0)` "
    "before the loop, and `state.{name} += 1` in it",
    cause="The training draws from an itertools.count that is not part of the registered state. A newcomer starts it from its first "
    "number.",
    remedy="Count in an attribute of job.state, as the message shows; or name it in job.ignore if the training does not depend on it.",
)
LOADER_MOVES = Message(
    "US1402",
    "{names} is an iterator that advances while the script trains: on a newcomer it restarts. Use `{shown} = job.iterator(loader)`, "
    "which continues at the position of the rank",
    cause="The training draws from iter(loader) directly. The position of this iterator is not known, so a newcomer starts at the "
    "beginning.",
    remedy="Create the iterator with job.iterator(loader), whose position is kept.",
)
ITERATOR_MOVES = Message(
    "US1403",
    "{names} is an iterator that advances while the script trains: on a newcomer it restarts. Draw from it before the loop, `{shown} = "
    "list(itertools.islice({shown}, STEPS))`, and use `{shown}[job.committed]`",
    cause="The training draws from a generator or iterator whose position can be neither read nor set. A newcomer starts at the beginning.",
    remedy="Draw all values into a list before the loop and index it by job.committed; or name it in job.ignore if the training does not "
    "depend on it.",
)
SENT_TO = Message(
    "US1404",
    "{names} is an iterator that advances while the script trains, by values that are sent to it: on a newcomer it restarts, without "
    "these values. Replace it by a function that keeps its variables{locals} in `state = job.state(...)`",
    cause="The training drives a generator by send(): its position depends on all values that were sent to it, and can be neither read nor "
    "set.",
    remedy="Write it as a function or class, and keep its variables in job.state; or name it in job.ignore if the training does not depend "
    "on it.",
)
DIFFERS_BY_RANK = Message(
    "US1411",
    "{names} differs from rank to rank and changes between the steps: a newcomer starts with the value of its setup. If the training "
    'depends on it, set `state = job.state({name}={value})` and use `state.{name}`; if not, call `job.ignore("{shown}")`',
    cause="A variable that is not registered differs between ranks and changes outside of transactions. No other rank has its value, and "
    "nothing copies it.",
    remedy="Keep it in job.state if the training depends on it. If it only feeds logs, name it in job.ignore, and this notice does not "
    "appear.",
)
TOO_LARGE_TENSOR = Message(
    "US1421",
    "{names} changes while the script trains, is not registered, and is too large to be checked in every step: a newcomer starts with "
    'the value of its setup. If the training depends on it, call `job.register({name}={shown})`; if not, `job.ignore("{shown}")`',
    cause="A large tensor, module or generator that is not registered changes during training. It is too large to be followed "
    "automatically.",
    remedy="Register it if the training depends on it; otherwise name it in job.ignore.",
)
TOO_LARGE_VALUE = Message(
    "US1422",
    "{names} changes while the script trains, is not registered, and is too large to be checked in every step: a newcomer starts with "
    "the value of its setup. If the training depends on it, set `state = job.state({name}={value})` and use `state.{name}`; if not, call "
    '`job.ignore("{shown}")`',
    cause="A large list, array or other value that is not registered changes during training. It is too large to be followed "
    "automatically.",
    remedy="Keep it in job.state if the training depends on it; otherwise name it in job.ignore.",
)
CHANGES_UNSEEN = Message(
    "US1423",
    "{names} changes while the script trains, and cannot be copied to another worker: a newcomer starts with the value of its setup. If "
    'the training depends on it, derive it in each step from a value in `job.state(...)`; if not, call `job.ignore("{shown}")`',
    cause="Something that is not registered changes during training and can be seen but not set: the function that a name refers to, a "
    "closure, a hook, an object of a library, a cache of results, the position of a file.",
    remedy="Keep the value that determines it in job.state: for example the name of a function, by which each step selects the function. "
    "If the training does not depend on it, name it in job.ignore.",
)
KEEPS_GRAPH = Message(
    "US1431",
    "{names} is a tensor with a graph that is kept from one step to the next. A graph cannot be sent to another worker, so a newcomer "
    "starts with the value of its setup. If the training depends on the tensor, detach it at the end of the step, `{shown}.detach()`; if "
    'not, call `job.ignore("{shown}")`',
    cause="A tensor is kept between steps together with the graph of operations that computed it. A graph cannot be sent to another "
    "process.",
    remedy="Detach the tensor at the end of the step. For backpropagation through several steps, put these steps into one transaction.",
)
SOURCE_UNREADABLE = Message(
    "US1441",
    "the source of {home} cannot be read: unregistered variables that it changes while it trains restart from their initial values on a "
    "newcomer. Keep variables that the training depends on in `state = job.state(...)`",
    cause="The source file of the running function is not available (started with -c or from standard input, generated code, or a "
    "compiled module), so its variables cannot be classified.",
    remedy="Keep everything that the training depends on in job.state or job.register; or start the script from a file.",
)
LOOK_ENDED = Message(
    "US1442",
    "the script holds more objects than can be searched: unregistered state that is reachable through {names} restarts from its initial "
    'value on a newcomer. `job.ignore("{root}")` excludes it from the search',
    cause="The search for changed variables visits a limited number of objects, and the script's variables hold more than that.",
    remedy="Exclude large data that does not change with job.ignore, and register the state that the training depends on.",
)
ENUMERATE_COUNTS = Message(
    "US1451",
    "{name} is counted by enumerate around the loop of the job ({place}){more}, and restarts on a newcomer. Instead, set `state = "
    "job.state({name}=0)` before the loop, and count with `state.{name} += 1` in it",
    cause="enumerate() wraps job.batches or job.steps, and the loop reads the number that enumerate counts. On a newcomer the job's loop "
    "continues, but enumerate starts from its first number.",
    remedy="Count in an attribute of job.state, or use job.committed.",
)
ZIP_DRAWS = Message(
    "US1452",
    "{name} comes from {source} by zip around the loop of the job ({place}){more}, and restarts on a newcomer. Instead, set `state = "
    "job.state(place=0)` before the loop; in the loop, read item `state.place` of {source}, then advance with `state.place += 1`",
    cause="zip() combines job.batches or job.steps with another iterable. On a newcomer the job's loop continues, but the other iterable "
    "starts from its first item.",
    remedy="Index the other sequence by a number that is kept in job.state, or use job.iterator for another loader.",
)
ISLICE_COUNTS = Message(
    "US1453",
    "islice counts around the loop of the job ({place}){more}, and restarts on a newcomer. Use `job.batches(loader, steps=N)` or "
    "`job.steps(N)`, which end after N steps",
    cause="itertools.islice limits job.batches or job.steps. On a newcomer the job's loop continues, but islice counts from zero.",
    remedy="Pass the number of steps to job.batches or job.steps.",
)

# -- why something is listed as not carried over -------------------------------------------------------------------------------

LISTED_MOVED = Message(
    "US1461",
    "an iterator that advances: on a newcomer it restarts",
    cause="The listing of the state (understudy status --state) found an iterator from which the training draws.",
    remedy="See US1401, US1402, US1403 and US1404 for alternatives to the iterator.",
)
LISTED_LEFT = Message(
    "US1462",
    "it differs from rank to rank and changes between the steps: a newcomer starts with the value of its setup",
    cause="The variable differs between ranks and changes outside of transactions, so that no other rank has its value.",
    remedy="See US1411: use job.state if the training depends on it, job.ignore if not.",
)
LISTED_LARGE = Message(
    "US1463",
    "it is too large to be checked in every step: a newcomer starts with the value of its setup",
    cause="The variable has changed and is too large to be followed automatically.",
    remedy="See US1421: register it if the training depends on it, job.ignore if not.",
)
LISTED_UNREAD = Message(
    "US1464",
    "the source cannot be read: none of its variables are checked",
    cause="The source of a running function is not available, so its variables cannot be classified.",
    remedy="See US1441: start the script from a file, or keep what the training depends on in job.state.",
)
LISTED_BEYOND = Message(
    "US1465",
    "the search ended here: everything below restarts from its initial value on a newcomer",
    cause="The script's variables hold more objects than the search for changes visits.",
    remedy="See US1442: exclude large data by job.ignore.",
)
LISTED_HISTORY = Message(
    "US1466",
    "a tensor with its graph, which cannot be sent to another worker: a newcomer starts with the value of its setup",
    cause="A tensor is kept between steps together with the graph of operations that computed it.",
    remedy="See US1431: detach it at the end of the step.",
)
LISTED_UNSEEN = Message(
    "US1468",
    "it changes, and cannot be copied to another worker: a newcomer starts with the value of its setup",
    cause="A function, closure, hook, object of a library, cache or file changes during training.",
    remedy="See US1423: keep the value that determines it in job.state.",
)
LISTED_RUNNING = Message(
    "US1467",
    "it advances with the loop of the job: on a newcomer it restarts",
    cause="enumerate, zip or islice is wrapped around the loop of the job.",
    remedy="See US1451, US1452 and US1453 for alternatives.",
)
