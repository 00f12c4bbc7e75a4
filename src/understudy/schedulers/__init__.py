"""Schedulers: who starts what leads a job and what serves its nodes. Today that is this machine; other packages may add others."""
