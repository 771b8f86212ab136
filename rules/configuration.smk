# Read the configuration files before Snakemake does. On invalid YAML, Snakemake prints a traceback or
# omits the file name; of two equal keys, it silently keeps the last.
import sys

from scripts.anatomy.config_loading import ConfigError, read

# A workflow that uses this one as a module passes its own configuration
as_module = workflow.modifier.skip_configfile
try:
    for file in [] if as_module else [CONFIG, *workflow.overwrite_configfiles]:
        read(Path(file))
except ConfigError as error:
    sys.exit(str(error))
