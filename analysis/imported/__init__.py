"""Runs of other tools, read from the files that they leave, judged and counted by this project's rules."""
