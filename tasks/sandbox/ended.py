"""The one way in which a sandbox stops giving answers."""

from __future__ import annotations


class Ended(BaseException):
    """The sandbox can give no more answers; `status` is the verdict and `text` says why.

    Not an Exception, so that a test that catches those does not swallow it.
    """

    def __init__(self, status: str, text: str) -> None:
        super().__init__(text)
        self.status = status
        self.text = text
