# The files of the configuration, looked at before Snakemake reads config.yaml. What is no YAML it
# tells with a traceback or without the file's name, and of a key that is given twice it takes the
# last.
import sys

from scripts.anatomy.config_loading import ConfigError, read

# a workflow that uses this one as a module has a configuration of its own
as_module = workflow.modifier.skip_configfile
try:
    for file in [] if as_module else [CONFIG, *workflow.overwrite_configfiles]:
        read(Path(file))
except ConfigError as error:
    sys.exit(str(error))
