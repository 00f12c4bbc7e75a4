"""What follows from evidence: rules that an operator writes, and what comes of them."""
