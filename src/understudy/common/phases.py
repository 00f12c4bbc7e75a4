"""The phases of an incident in order, as status, reports and tables name them (docs/internals/architecture.md, "An unplanned loss")."""

from __future__ import annotations

PHASES = ("detect", "abort", "assign", "setup", "attach", "transfer", "verify", "redo")
