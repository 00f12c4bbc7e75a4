"""What every implementation of a port has to do."""
