"""The orchestrator: the core with a clock, a journal and a network. It never imports torch."""
