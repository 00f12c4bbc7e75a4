"""messages.md, and a page for each area of messages in messages/: every code with its text, cause and remedy, by module."""

from __future__ import annotations

from collections.abc import Iterator
from importlib import import_module
from pkgutil import walk_packages

from scripts.reference.markdown import as_sentence, escape, sentence, table

import understudy.messages
from understudy.messages.base import Message
from understudy.messages.registry import AREAS, registry

TITLES = {"set_up": "Setup", "kubernetes_api": "Kubernetes API"}  # the others are names of modules


def by_module() -> dict[str, list[Message]]:
    """The messages of each module, by its name, in the order of codes."""
    known, found = registry(), dict[str, list[Message]]()
    for module in walk_packages(understudy.messages.__path__, "understudy.messages."):
        own = [one for one in vars(import_module(module.name)).values() if isinstance(one, Message) and known[one.code] is one]
        if own:
            found[module.name] = sorted(own, key=lambda one: one.code)
    return found


def pages() -> dict[str, str]:
    modules = by_module()
    areas = {area: sorted((own[0].code, name) for name, own in modules.items() if own[0].code.startswith(area)) for area in AREAS}
    counts = {area: sum(len(modules[name]) for _, name in found) for area, found in areas.items()}
    made = {_page(area): "\n".join(_area(area, [(name, modules[name]) for _, name in found])) for area, found in areas.items()}
    rows = ([f"[{area}xxx]({_page(area)})", AREAS[area], str(counts[area])] for area in AREAS)
    lines = [
        "# Messages",
        "",
        "Every message of Understudy begins with a code, such as `US4150`. `understudy explain US4150` prints the same as these pages.",
        "The code stays the same when the wording changes, and is never reused: scripts and alerts can rely on it.",
        "",
        *table(["codes", "area", "messages"], rows),
    ]
    return {"messages.md": "\n".join(lines), **made}


def _page(area: str) -> str:
    return f"messages/{area.lower()}.md"


def _area(area: str, modules: list[tuple[str, list[Message]]]) -> Iterator[str]:
    yield from (f"# {area}xxx: {AREAS[area]}", "", "Words in braces, such as `{rank}`, stand for values.")
    for name, messages in modules:
        about = import_module(name).__doc__ or ""
        rows = ([f'<a id="{one.code.lower()}"></a>{one.code}', *map(escape, (one.template, one.cause, one.remedy))] for one in messages)
        yield from ("", f"## {_title(name)}", "", escape(as_sentence(sentence(about))), "")
        yield from table(["code", "message", "cause", "what to do"], rows)


def _title(module: str) -> str:
    name = module.rpartition(".")[2]
    return TITLES.get(name) or name.replace("_", " ").capitalize()
