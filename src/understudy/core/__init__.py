"""Pure decisions: events in, commands out; no I/O, no clock, nothing but the standard library."""
