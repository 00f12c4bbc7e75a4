"""What an exception says of the device of its rank."""
