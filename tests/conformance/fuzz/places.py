"""The places where a training script can hide state, each with the ways to change it, as fragments of source.

`{h}` is the name of the state (`{H}`: in capitals), which is unique in its script, so that messages and parameters can be attributed to it.
A fragment may use what `composing` puts before it: `Holder` and other classes, `model`, `net`, `optimizer`, `data`, `loader`, and the
modules in `IMPORTS`. Changes may use `n`, the number of the step, and `seen`, a number that differs from rank to rank.

A place is a number that can be read and written, a container that grows and shrinks, or something that moves on with each read. A number
has the ways of `WAYS`, a container its own ones, and the last kind none: reading is the change.

Limits: one number is all that a state gives to the training. State in the memory of other libraries is in `tests/conformance/lies`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

IMPORTS = (
    "array, builtins, collections, contextvars, dataclasses, decimal, enum, functools, heapq, hashlib, io, itertools, logging, math, os, "
    "queue, random, sys, tempfile, threading, types, weakref"
)
NEW = "VALUE"  # in a fragment that writes: the new value
WAYS = {  # of a number, by its present value `OLD`
    "counts": "OLD + 1.0",
    "smooths": "0.5 * OLD + 0.5 * seen",
    "changes late": "OLD + (3.0 if n == 4 else 0.0)",
    "changes every third step": "OLD * 2.0 if n % 3 == 2 else OLD",
    "toggles": "3.0 - OLD",
    "follows the step": "0.5 * n",
}
READ = "reading is the change"


@dataclass(frozen=True)
class Place:
    name: str
    setup: str
    read: str  # an expression: a number
    ways: Mapping[str, str] = field(default_factory=dict)  # statements
    rebinds: bool = False  # a way assigns to the name of the state itself


def _number(name: str, setup: str, read: str, write: str, rebinds: bool = False) -> Place:
    """A place that holds a number. `write`: statements with VALUE."""
    ways = {way: write.replace(NEW, "(" + value.replace("OLD", f"({read})") + ")") for way, value in WAYS.items()}
    return Place(name, setup, read, ways, rebinds)


def _whole(name: str, setup: str, read: str, write: str) -> Place:
    """The same for whole numbers from 1 to 200."""
    ways = ("counts", "changes late", "toggles")
    place = _number(name, setup, read, write.replace(NEW, f"int({NEW})"))
    return Place(name, setup, read, {way: place.ways[way] for way in ways})


_NUMBERS = (
    _number("name", "{h} = 1.0", "{h}", "{h} = VALUE", True),
    _number("attribute of an object", "{h} = Holder(1.0)", "{h}.level", "{h}.level = VALUE"),
    _number("attribute made in a step", "{h} = Holder(1.0)", "getattr({h}, 'late', 1.0)", "{h}.late = VALUE"),
    _number("object in an object", "{h} = Holder(Holder(1.0))", "{h}.level.level", "{h}.level.level = VALUE"),
    _number("object replaced", "{h} = Holder(Holder(1.0))", "{h}.level.level", "{h}.level = Holder(VALUE)"),
    _number("attributes replaced together", "{h} = Holder(1.0)", "{h}.level", "{h}.__dict__ = dict(level=VALUE)"),
    _number("slot", "class Of_{h}:\n    __slots__ = ('level',)\n{h} = Of_{h}()\n{h}.level = 1.0", "{h}.level", "{h}.level = VALUE"),
    _number("class attribute", "class {h}:\n    level = 1.0", "{h}.level", "{h}.level = VALUE"),
    _number("class attribute made in a step", "class {h}:\n    pass", "getattr({h}, 'level', 1.0)", "{h}.level = VALUE"),
    _number(
        "class attribute of a class in a function",
        "def make_{h}():\n    class Inner:\n        level = 1.0\n    return Inner()\n{h} = make_{h}()",
        "{h}.level",
        "type({h}).level = VALUE",
    ),
    _number(
        "attribute of a metaclass",
        "class Meta_{h}(type):\n    level = 1.0\nclass {h}(metaclass=Meta_{h}):\n    pass",
        "{h}.level",
        "Meta_{h}.level = VALUE",
    ),
    _number(
        "descriptor",
        "class Kept_{h}:\n    def __init__(self):\n        self.values = weakref.WeakKeyDictionary()\n"
        "    def __get__(self, owner, kind):\n        return self.values.get(owner, 1.0)\n"
        "    def __set__(self, owner, value):\n        self.values[owner] = value\n"
        "class Of_{h}:\n    level = Kept_{h}()\n{h} = Of_{h}()",
        "{h}.level",
        "{h}.level = VALUE",
    ),
    _number(
        "property replaced",
        "class {h}:\n    level = property(lambda self: 1.0)",
        "{h}().level",
        "{h}.level = property(lambda self, v=VALUE: v)",
    ),
    _number(
        "class exchanged",
        "{h} = Holder(1.0)",
        "getattr(type({h}), 'own', 1.0)",
        "{h}.__class__ = type('Stage', (Holder,), dict(own=VALUE))",
    ),
    _number("attribute of a function", "def {h}():\n    return {h}.level\n{h}.level = 1.0", "{h}()", "{h}.level = VALUE"),
    _number("default argument", "def {h}(level=1.0):\n    return level", "{h}()", "{h}.__defaults__ = (VALUE,)"),
    _number("default of a keyword", "def {h}(*, level=1.0):\n    return level", "{h}()", "{h}.__kwdefaults__['level'] = VALUE"),
    _number("default that is a list", "def {h}(kept=[1.0]):\n    return kept", "{h}()[0]", "{h}()[0] = VALUE"),
    _number(
        "closure cell",
        "def make_{h}():\n    level = 1.0\n    def get():\n        return level\n    def put(value):\n        nonlocal level\n"
        "        level = value\n    return get, put\n{h}, put_{h} = make_{h}()",
        "{h}()",
        "put_{h}(VALUE)",
    ),
    _number("closure of a lambda", "{h} = (lambda kept: lambda: kept)([1.0])", "{h}()[0]", "{h}()[0] = VALUE"),
    _number("lambda replaced", "{h} = lambda level=1.0: level", "{h}()", "{h} = lambda level=VALUE: level", True),
    _number("method of an object replaced", "{h} = Holder(1.0)\n{h}.get = lambda: 1.0", "{h}.get()", "{h}.get = lambda level=VALUE: level"),
    _number("owner of a bound method", "{h} = Holder(1.0).get", "{h}()", "{h}.__self__.level = VALUE"),
    _number("partial's keyword", "{h} = functools.partial(dict, level=1.0)", "{h}()['level']", "{h}.keywords['level'] = VALUE"),
    _number("partial replaced", "{h} = functools.partial(float, 1.0)", "{h}()", "{h} = functools.partial(float, VALUE)", True),
    _number("decorator", "@remembered\ndef {h}():\n    return 1.0", "{h}.kept.get('level', 1.0)", "{h}.kept['level'] = VALUE"),
    _number("attribute of a registered module", "net.{h} = 1.0", "net.{h}", "net.{h} = VALUE"),
    _number("attribute of a registered module made in a step", "", "getattr(net, '{h}', 1.0)", "net.{h} = VALUE"),
    _number("list in a registered module", "net.{h} = [1.0]", "net.{h}[0]", "net.{h}[0] = VALUE"),
    _number("attribute of the optimizer", "optimizer.{h} = 1.0", "optimizer.{h}", "optimizer.{h} = VALUE"),
    _number("dict of the optimizer", "optimizer.{h} = dict(level=1.0)", "optimizer.{h}['level']", "optimizer.{h}['level'] = VALUE"),
    _number(
        "key of a parameter group",
        "optimizer.param_groups[0]['{h}'] = 1.0",
        "optimizer.param_groups[0]['{h}']",
        "optimizer.param_groups[0]['{h}'] = VALUE",
    ),
    _number("attribute of the data set", "data.{h} = 1.0", "data.{h}", "data.{h} = VALUE"),
    _number("attribute of the sampler", "loader.sampler.{h} = 1.0", "loader.sampler.{h}", "loader.sampler.{h} = VALUE"),
    _number("attribute of the loader", "loader.{h} = 1.0", "loader.{h}", "loader.{h} = VALUE"),
    _number("attribute of a parameter", "net[0].weight.{h} = 1.0", "net[0].weight.{h}", "net[0].weight.{h} = VALUE"),
    _number("attribute of a tensor", "{h} = torch.zeros(2)\n{h}.level = 1.0", "{h}.level", "{h}.level = VALUE"),
    _number("item of a dict", "{h} = dict(level=1.0)", "{h}['level']", "{h}['level'] = VALUE"),
    _number("item made in a step", "{h} = {{}}", "{h}.get('level', 1.0)", "{h}['level'] = VALUE"),
    _number("dict in a dict", "{h} = dict(inner=dict(level=1.0))", "{h}['inner']['level']", "{h}['inner']['level'] = VALUE"),
    _number("item of a dict's subclass", "{h} = Options(level=1.0)", "{h}['level']", "{h}['level'] = VALUE"),
    _number("attribute of a dict's subclass", "{h} = Options()\n{h}.level = 1.0", "{h}.level", "{h}.level = VALUE"),
    _number("item of a list", "{h} = [0.0, 1.0]", "{h}[1]", "{h}[1] = VALUE"),
    _number("item of a list's subclass", "{h} = Items([0.0, 1.0])", "{h}[1]", "{h}[1] = VALUE"),
    _number("list in a tuple", "{h} = ([1.0], 2)", "{h}[0][0]", "{h}[0][0] = VALUE"),
    _number("tuple replaced", "{h} = (1.0, 2.0)", "{h}[0]", "{h} = (VALUE, 2.0)", True),
    _number(
        "named tuple replaced", "{h} = collections.namedtuple('Of_{h}', 'level')(1.0)", "{h}.level", "{h} = {h}._replace(level=VALUE)", True
    ),
    _number("frozen dataclass replaced", "{h} = Frozen(1.0)", "{h}.level", "{h} = dataclasses.replace({h}, level=VALUE)", True),
    _number("frozen dataclass forced", "{h} = Frozen(1.0)", "{h}.level", "object.__setattr__({h}, 'level', VALUE)"),
    _number("namespace", "{h} = types.SimpleNamespace(level=1.0)", "{h}.level", "{h}.level = VALUE"),
    _number("user dict", "{h} = collections.UserDict(level=1.0)", "{h}['level']", "{h}['level'] = VALUE"),
    _number("chain map", "{h} = collections.ChainMap({{}}, dict(level=1.0))", "{h}['level']", "{h}['level'] = VALUE"),
    _number("weak dict", "{h} = weakref.WeakKeyDictionary()\n{h}[model] = 1.0", "{h}[model]", "{h}[model] = VALUE"),
    _number(
        "read-only view",
        "under_{h} = dict(level=1.0)\n{h} = types.MappingProxyType(under_{h})",
        "{h}['level']",
        "under_{h}['level'] = VALUE",
    ),
    _number("context variable", "{h} = contextvars.ContextVar('{h}', default=1.0)", "{h}.get()", "{h}.set(VALUE)"),
    _number("thread's own", "{h} = threading.local()\n{h}.level = 1.0", "{h}.level", "{h}.level = VALUE"),
    _number("environment variable", "os.environ['{H}'] = '1.0'", "float(os.environ['{H}'])", "os.environ['{H}'] = str(VALUE)"),
    _number(
        "environment variable with its name", "os.environ['{h}'] = '1.0'", "float(os.environ['{h}'])", "os.environ['{h}'] = str(VALUE)"
    ),
    _number("attribute of a library", "nn.functional.{h} = 1.0", "nn.functional.{h}", "nn.functional.{h} = VALUE"),
    _number("attribute of a class of a library", "nn.Linear.{h} = 1.0", "nn.Linear.{h}", "nn.Linear.{h} = VALUE"),
    _number("attribute of a module of Python", "math.{h} = 1.0", "math.{h}", "math.{h} = VALUE"),
    _number("built-in name", "builtins.{h} = 1.0", "builtins.{h}", "builtins.{h} = VALUE"),
    _number("item of globals()", "", "globals().get('{h}', 1.0)", "globals()['{h}'] = VALUE"),
    _number("module made by hand", "{h} = types.ModuleType('of_{h}')\n{h}.level = 1.0", "{h}.level", "{h}.level = VALUE"),
    _number(
        "module in sys.modules only",
        "sys.modules['of_{h}'] = types.ModuleType('of_{h}')\nsys.modules['of_{h}'].level = 1.0",
        "sys.modules['of_{h}'].level",
        "sys.modules['of_{h}'].level = VALUE",
    ),
    _number("enum member", "class {h}(enum.Enum):\n    ONE = 1\n{h}.ONE.level = 1.0", "{h}.ONE.level", "{h}.ONE.level = VALUE"),
    _number("exception", "{h} = ValueError(1.0)", "{h}.args[0]", "{h}.args = (VALUE,)"),
    _number("array", "{h} = np.array([0.0, 1.0])", "float({h}[1])", "{h}[1] = VALUE"),
    _number("view of an array", "{h} = np.ones(4)[1:3]", "float({h}[0])", "{h}[0] = VALUE"),
    _number("array without dimensions", "{h} = np.array(1.0)", "float({h})", "{h}[...] = VALUE"),
    _number("structured array", "{h} = np.ones(2, dtype=[('level', 'f8')])", "float({h}['level'][0])", "{h}['level'][0] = VALUE"),
    _number("array of objects", "{h} = np.array([None, 1.0], dtype=object)", "{h}[1]", "{h}[1] = VALUE"),
    _number("masked array", "{h} = np.ma.array([1.0, 2.0], mask=[False, True])", "float({h}[0])", "{h}[0] = VALUE"),
    _number("large array", "{h} = np.ones(1 << 18)", "float({h}[99])", "{h}[99] = VALUE"),
    _number(
        "mapped file",
        "file_{h} = tempfile.NamedTemporaryFile()\n{h} = np.memmap(file_{h}.name, dtype='f8', mode='w+', shape=(4,))\n{h}[:] = 1.0",
        "float({h}[2])",
        "{h}[2] = VALUE",
    ),
    _number("array of numbers", "{h} = array.array('d', [1.0])", "{h}[0]", "{h}[0] = VALUE"),
    _number("tensor", "{h} = torch.ones(2)", "{h}[1].item()", "{h}[1] = VALUE"),
    _number("tensor through numpy", "{h} = torch.ones(2)", "{h}[1].item()", "{h}.numpy()[1] = VALUE"),
    _number("tensor's data exchanged", "{h} = torch.ones(2)", "{h}[1].item()", "{h}.data = torch.full((2,), VALUE)"),
    _number("tensor replaced", "{h} = torch.ones(2)", "{h}[1].item()", "{h} = torch.full((2,), VALUE)", True),
    _number("large tensor", "{h} = torch.ones(1 << 19)", "{h}[77].item()", "{h}[77] = VALUE"),
    _number("tensor in a list", "{h} = [torch.ones(2)]", "{h}[0][1].item()", "{h}[0][1] = VALUE"),
    _number("unregistered module", "{h} = nn.Linear(1, 1)\nnn.init.ones_({h}.bias)", "{h}.bias.item()", "{h}.bias.data.fill_(VALUE)"),
    _number(
        "gradient of a tensor",
        "{h} = torch.ones(1, requires_grad=True)\n{h}.grad = torch.ones(1)",
        "{h}.grad.item()",
        "{h}.grad.fill_(VALUE)",
    ),
    _number(
        "gradient replaced",
        "{h} = torch.ones(1, requires_grad=True)\n{h}.grad = torch.ones(1)",
        "{h}.grad.item()",
        "{h}.grad = torch.full((1,), VALUE)",
    ),
    _number("result in a cache", "@functools.cache\ndef {h}():\n    return [1.0]\n{h}()", "{h}()[0]", "{h}()[0] = VALUE"),
    _number("cached property", "{h} = Lazy()", "{h}.kept[0]", "{h}.kept[0] = VALUE"),
    _number("object with a lock", "{h} = Holder(1.0)\n{h}.lock = threading.Lock()", "{h}.level", "{h}.level = VALUE"),
    _number("text in memory", "{h} = io.StringIO('1.0')", "float({h}.getvalue())", "rewrite({h}, str(VALUE))"),
    _number("string", "{h} = '1.0'", "float({h})", "{h} = str(VALUE)", True),
    _number("file", "{h} = tempfile.NamedTemporaryFile('w+')\n{h}.write('1.0')", "first_of({h})", "rewrite({h}, str(VALUE))"),
    _whole(
        "level of a logger",
        "logging.getLogger('{h}').setLevel(1)",
        "logging.getLogger('{h}').level",
        "logging.getLogger('{h}').setLevel(VALUE)",
    ),
    _whole("decimal context", "decimal.getcontext().prec = 1", "decimal.getcontext().prec", "decimal.getcontext().prec = VALUE"),
    _whole("byte array", "{h} = bytearray([1])", "{h}[0]", "{h}[0] = VALUE"),
)


def _changes(name: str, setup: str, read: str, rebinds: bool = False, **ways: str) -> Place:
    return Place(name, setup, read, {way.replace("_", " "): change for way, change in ways.items()}, rebinds)


_LAST = "sum({h}[-3:])"
_CONTAINERS = (
    _changes(
        "list",
        "{h} = [1.0]",
        _LAST,
        appends="{h}.append(seen)",
        appends_and_pops="{h}.append(float(n))\nif len({h}) > 3:\n    {h}.pop(0)",
        inserts="{h}.insert(0, seen)\ndel {h}[4:]",
        assigns_a_slice="{h}[:] = [float(n), seen]",
        reverses="{h}.append(float(n))\n{h}.reverse()",
        clears_now_and_then="{h}.append(seen)\nif n % 3 == 2:\n    {h}.clear()",
    ),
    _changes("list that is added to", "{h} = [1.0]", _LAST, True, extends="{h} += [seen]", replaces="{h} = [*{h}[-2:], float(n)]"),
    _changes("list in a list", "{h} = [[1.0]]", "sum({h}[0][-3:])", appends="{h}[0].append(seen)", replaces="{h}[0] = [float(n)]"),
    _changes("list of objects", "{h} = [Holder(1.0)]", "{h}[-1].level", appends="{h}.append(Holder(seen))", changes="{h}[0].level += n"),
    _changes("list of tensors", "{h} = [torch.ones(1)]", "{h}[-1].item()", appends="{h}.append(torch.full((1,), seen))"),
    _changes("list in a default dict", "{h} = collections.defaultdict(list)", "len({h}['kept'])", appends="{h}['kept'].append(seen)"),
    _changes("default dict", "{h} = collections.defaultdict(float)", "sum({h}.values())", adds="{h}[n % 3] += seen"),
    _changes("dict", "{h} = {{}}", "sum({h}.values())", grows="{h}[n] = seen", grows_and_pops="{h}[n] = seen\n{h}.pop(n - 2, None)"),
    _changes(
        "ordered dict",
        "{h} = collections.OrderedDict(a=1.0, b=2.0, c=3.0)",
        "next(iter({h}.values()))",
        moves="{h}.move_to_end(next(iter({h})))",
    ),
    _changes("dict by objects", "{h} = {{net[0].weight: 1.0}}", "sum({h}.values())", adds="{h}[net[0].weight] += seen"),
    _changes("counter", "{h} = collections.Counter()", "{h}.total()", updates="{h}.update([n % 2])", subtracts="{h}.subtract(dict(a=n))"),
    _changes(
        "set",
        "{h} = set()",
        "len({h})",
        adds="{h}.add(n)",
        adds_and_discards="{h}.add(n)\n{h}.discard(n - 3)",
        flips="{h}.symmetric_difference_update({{1}})",
    ),
    _changes("deque", "{h} = collections.deque([1.0, 2.0, 3.0], maxlen=3)", "{h}[0]", appends="{h}.append(seen)", rotates="{h}.rotate(1)"),
    _changes("deque's subclass", "{h} = Window([1.0])", "{h}[0] + {h}.total", puts="{h}.put(seen)"),
    _changes("heap", "{h} = [5.0]", "{h}[0]", pushes="heapq.heappush({h}, 4.0 - n)", replaces="heapq.heapreplace({h}, seen + n)"),
    _changes("queue", "{h} = queue.Queue()\n{h}.put(1.0)", "{h}.queue[0]", gets_and_puts="{h}.put({h}.get() + 1.0)"),
    _changes("simple queue", "{h} = queue.SimpleQueue()", "{h}.qsize()", puts="{h}.put(n)"),
    _changes("hooks", "net[1].{h} = []", "len(net[0]._forward_hooks)", adds="net[1].{h}.append(net[0].register_forward_hook(no_change))"),
    _changes("bytes", "{h} = b'a'", "len({h})", True, adds="{h} += b'b'"),
    _changes("byte array that grows", "{h} = bytearray(1)", "len({h})", extends="{h}.extend(b'b')"),
    _changes("digest", "{h} = hashlib.sha256()", "{h}.digest()[0]", updates="{h}.update(str(n).encode())"),
    _changes("cache of results", "@functools.cache\ndef {h}(n):\n    return n", "{h}.cache_info().currsize", calls="{h}(n)"),
    _changes("object as a counter of calls", "{h} = Calls()", "{h}.count", calls="{h}()"),
    _changes("buffer of bytes", "{h} = io.BytesIO()", "{h}.tell()", writes="{h}.write(b'ab')"),
)


def _drawn(name: str, setup: str, read: str) -> Place:
    return Place(name, setup, read, {READ: "pass"})


_LIST = "[1.0, 2.0, 4.0, 8.0, 16.0] * 40"
_DRAWS = (
    _drawn("random.Random", "{h} = random.Random(1)", "{h}.random()"),
    _drawn("random.Random in a closure", "{h} = (lambda own: lambda: own.random())(random.Random(1))", "{h}()"),
    _drawn("random.Random's method", "{h} = random.Random(1).random", "{h}()"),
    _drawn("random.Random's subclass", "class Of_{h}(random.Random):\n    pass\n{h} = Of_{h}(1)", "{h}.gauss(0, 1)"),
    _drawn("numpy generator", "{h} = np.random.default_rng(1)", "{h}.random()"),
    _drawn("numpy generator in a list", "{h} = [np.random.Generator(np.random.Philox(1))]", "{h}[0].random()"),
    _drawn("numpy's random state", "{h} = np.random.RandomState(1)", "{h}.rand()"),
    _drawn("torch generator", "{h} = torch.Generator().manual_seed(1)", "torch.rand(1, generator={h}).item()"),
    _drawn("torch generator in an object", "{h} = Holder(torch.Generator().manual_seed(1))", "torch.rand(1, generator={h}.level).item()"),
    _drawn("count", "{h} = itertools.count()", "next({h})"),
    _drawn("count in a closure", "{h} = (lambda own: lambda: next(own))(itertools.count())", "{h}()"),
    _drawn("count as a default factory", "{h} = collections.defaultdict(itertools.count().__next__)", "{h}[n]"),
    _drawn("cycle", "{h} = itertools.cycle([1.0, 2.0, 4.0])", "next({h})"),
    _drawn("iterator over a list", "{h} = iter(" + _LIST + ")", "next({h})"),
    _drawn("iterator over a range", "{h} = iter(range(1000))", "next({h})"),
    _drawn("iterator in an object", "{h} = Holder(iter(" + _LIST + "))", "next({h}.level)"),
    _drawn("map", "{h} = map(float, range(1000))", "next({h})"),
    _drawn("zip", "{h} = zip(range(1000), range(1000))", "next({h})[0]"),
    _drawn("accumulate", "{h} = itertools.accumulate(range(1000))", "next({h})"),
    _drawn(
        "generator",
        "def make_{h}():\n    level = 1.0\n    while True:\n        yield level\n        level += 1.0\n{h} = make_{h}()",
        "next({h})",
    ),
    _drawn("generator expression", "{h} = (float(k) for k in range(1000))", "next({h})"),
    _drawn("enumerate", "{h} = enumerate(" + _LIST + ")", "next({h})[0]"),
    _drawn("lines of a text in memory", "{h} = io.StringIO(''.join(f'{{k}}\\n' for k in range(500)))", "float({h}.readline())"),
    _drawn("iterator of its own", "{h} = Steps()", "next({h})"),
)
PLACES: Mapping[str, Place] = {place.name: place for place in (*_NUMBERS, *_CONTAINERS, *_DRAWS)}
