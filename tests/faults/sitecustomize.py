"""Python runs this at its start where this folder is on PYTHONPATH: it makes the task `faulty` known."""

from tasks.registry import TASKS

TASKS["faulty"] = "faulty:Faulty"
