"""How does the operator log? To stderr, one line an event: JSON for machines, or text."""

import json
import logging
import sys
from datetime import UTC, datetime

_QUIET = ("kopf", "kubernetes", "urllib3", "aiohttp", "asyncio")
"""Libraries: what they say below a warning is no event of ours."""


class _JsonLines(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        line = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        return json.dumps(line, ensure_ascii=False)


def configure_logging(level: str, form: str) -> None:
    handler = logging.StreamHandler(sys.stderr)
    if form == "json":
        handler.setFormatter(_JsonLines())
    else:
        handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(name)s %(message)s"))
    logging.basicConfig(level=level.upper(), handlers=[handler], force=True)
    # It says that it does not take signals, which is as wanted.
    logging.getLogger("kopf._core.reactor.running").setLevel(logging.ERROR)
    for name in _QUIET:
        logging.getLogger(name).setLevel(logging.WARNING)
