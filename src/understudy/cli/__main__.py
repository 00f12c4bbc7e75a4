"""`python -m understudy.cli`: the same as the `understudy` command."""

from understudy.cli import main

main()
