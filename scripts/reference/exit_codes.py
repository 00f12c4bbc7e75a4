"""exit-codes.md: the table of `understudy.cli.exit_codes`."""

from __future__ import annotations

from scripts.reference.markdown import code, table

from understudy.cli.exit_codes import COMMON, OF, Codes


def pages() -> dict[str, str]:
    lines = [
        "# Exit codes",
        "",
        "The meaning of each exit code. A command that has no section below uses these codes:",
        "",
        *_table(COMMON),
    ]
    for command, codes in OF.items():
        lines += ["", f"## understudy {command}", "", *_table(codes)]
    return {"exit-codes.md": "\n".join(lines)}


def _table(codes: Codes) -> list[str]:
    return table(["exit code", "meaning"], ([code(str(number)), text] for number, text in codes.items()))
