"""environment.md: the table of `understudy.common.environment`; the meaning of a default of an option is the option's help."""

from __future__ import annotations

from scripts.reference.cli import commands
from scripts.reference.markdown import anchor, code, paragraphs, table

from understudy.common.environment import VARIABLES, Use, Variable

ABOUT = {
    Use.ACCESS: "",
    Use.OPTION: "An option on the command line has precedence.",
    Use.LIMIT: "Set them where `understudy run` is started, with the same value on every node.",
    Use.PODS: "",
    Use.PLUGIN: "Set them in the environment of the workers; `understudy network env` repeats those that are set.",
    Use.WORKER: "A script may read these. Variables of the rank, such as `RANK`, are set in `os.environ` when a worker gets its rank, so "
    "`/proc/PID/environ` does not show them.",
    Use.OTHER: "A default is set in workers unless the variable has a value.",
}


def pages() -> dict[str, str]:
    lines = ["# Environment variables", "", "The variables that Understudy reads, and those that it sets for your script."]
    for use, text in ABOUT.items():
        rows = [_row(variable) for variable in VARIABLES if variable.use is use]
        lines += ["", f"## {use.value}", "", *([*paragraphs(text), ""] if text else []), *table(["variable", "default", "meaning"], rows)]
    return {"environment.md": "\n".join(lines)}


def _row(variable: Variable) -> list[str]:
    if variable.use is not Use.OPTION:
        return [code(variable.name), variable.default, variable.meaning]
    options: dict[str, list[str]] = {}
    for command in commands():
        for option in command.parameters("option"):
            if option.envvar == variable.name:
                options.setdefault(max(option.opts, key=len), []).append(command.name)
    if not options:
        raise ValueError(f"{variable.name} is the default of no option")
    places = [f"{code(name)} of {_of(found)}" for name, found in options.items()]
    return [code(variable.name), "", f"Default of {', '.join(places)}."]


def _of(names: list[str]) -> str:
    if len(names) > 3:
        return "all commands that have it"
    return " and ".join(f"[{code(f'understudy {name}')}](cli.md#{anchor(f'understudy {name}')})" for name in names)
