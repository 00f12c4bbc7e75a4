"""The phases of an incident in order, as status, reports and tables name them (docs/internals/index.md, "A recovery, in order")."""

from __future__ import annotations

PHASES = ("detect", "abort", "assign", "setup", "attach", "transfer", "verify", "redo")
