"""`understudy run --check`: test whether the recovery of this script is bitwise on this machine."""
