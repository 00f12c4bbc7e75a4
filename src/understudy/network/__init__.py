"""Keep a job going when one of the networks between its hosts fails: rails for plain TCP, and a network plugin for NCCL and RCCL."""
