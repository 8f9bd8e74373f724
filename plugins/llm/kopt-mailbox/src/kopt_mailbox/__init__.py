"""A language model for kopt that is a folder: each request is a file, and so is each reply."""

from __future__ import annotations

from kopt_mailbox.mailbox import Mailbox

__all__ = ["Mailbox"]
