"""A server process: `python -m tests.fake_process PORT [LIFE]` answers LIFE requests, then dies in the middle of one.

With the port "refuse" it prints a reason and ends at once, as a server without its model does.
"""

from __future__ import annotations

import os
import sys
import threading
from typing import Any

from tests.fake_server import Answer, generated, serving, whole
from tests.served_runs import gold_text

if __name__ == "__main__":
    if sys.argv[1] == "refuse":
        sys.exit("no such model: nowhere/nothing")
    life = int(sys.argv[2]) if len(sys.argv) > 2 else 10**9

    def behave(number: int, attempt: int, body: dict[str, Any]) -> Answer:
        global life
        life -= 1
        if life < 0:
            os._exit(9)
        return whole(generated(gold_text(number)))

    with serving(behave, port=int(sys.argv[1])):
        threading.Event().wait()
