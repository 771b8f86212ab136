"""A logger for Snakemake, `--logger jobs`, that prints a job as its rule and its wildcards.

Snakemake finds packages with this prefix in PYTHONPATH.
"""

from logging import LogRecord

from snakemake_interface_logger_plugins.base import LogHandlerBase
from snakemake_interface_logger_plugins.common import LogEvent

PREFIX = "JOB "


class LogHandler(LogHandlerBase):
    """Print a line for each job, and everything else as Snakemake does."""

    writes_to_stream = True
    writes_to_file = False
    has_filter = False
    has_formatter = False
    needs_rulegraph = False

    def emit(self, record: LogRecord) -> None:
        """Print a record."""
        if getattr(record, "event", None) == LogEvent.JOB_INFO:
            print(PREFIX + " ".join([record.rule_name, *record.wildcards.values()]))
        else:
            print(self.format(record))
