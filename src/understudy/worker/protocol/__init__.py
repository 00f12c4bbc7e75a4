"""How a rank goes through its transactions together with the others, and how a newcomer takes one over."""
