"""Devices that ranks compute on: what an exception says of one, which one a rank is on, and the way out of a job when it fails."""
