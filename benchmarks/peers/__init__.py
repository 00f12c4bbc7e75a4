"""Compare Understudy with its alternatives: the same training under several systems, with the same faults.

Theory. `training.py` is the training itself and knows no system. Each system has a thin entry (`entry_*.py`) that runs it, and, where
its users would write one, a launcher (`launch_*.py`). Both run as modules (`python -m peers.entry_plain`), in the environment that has
the system's package. Every process appends its progress to one log (`log.py`); nothing else is required of a system. The observer
(`observe.py`) starts a system (`systems.py`), reads the log as it grows, kills processes named there, and computes everything from the log
afterwards (`measures.py`).

Fairness: batches are a pure function of the step and the rank, and nothing is drawn while training, so that no system
has to carry random streams or a position in the data. That favours systems that leave such state to the user.
"""
