"""Devices of ranks: which exceptions mean a failed device, which device a rank uses, and how a rank leaves the job if its device fails."""
