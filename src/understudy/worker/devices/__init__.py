"""Devices that ranks compute on: what an exception says about one, which one a rank uses, and how a rank leaves a job when it fails."""
