"""`understudy run --check`: is the recovery of this script bitwise here?"""
