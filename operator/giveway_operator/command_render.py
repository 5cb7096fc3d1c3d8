"""What would the operator publish for these files? `giveway render FILES...`

The operator's own rendering, of files instead of a cluster: the ConfigMap of each namespace, to the
byte. `--diff` compares with what a cluster has. API keys are in Secrets, which files do not hold,
and no digest of one is in a ConfigMap: so what is told is the same.
"""

import argparse
import sys
from pathlib import Path

from giveway_policy.command_lint import all_there

from giveway_operator.missing_parts import tell_missing_part

DESCRIPTION = """\
Print the ConfigMaps that `giveway operate` would publish for SLOPolicy and TenantPriority resources
in files. With --diff: print what would change in a cluster, and nothing if nothing would."""
EPILOG = """\
example:
  giveway render examples/
  giveway render --diff --namespace llm policies/

Policies without a namespace are taken to be in --namespace. Tenants are for all policies, so the
files have to hold all of them. The weights and numbers of a document are the cluster's
with --diff, else the policy's own, and 0 and 1.

Exit codes: 0 rendered, or no difference, 1 faults, a difference or no answer of the API server,
2 wrong use."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Nothing is imported here but the parser, so that --help answers at once."""
    parser.description = DESCRIPTION
    parser.epilog = EPILOG
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("files", nargs="+", type=Path, metavar="FILE", help="a file or a folder")
    parser.add_argument(
        "--namespace",
        default="default",
        metavar="NAME",
        help="of policies that name none (default)",
    )
    parser.add_argument("--diff", action="store_true", help="compare with what a cluster has")
    parser.add_argument(
        "--kubeconfig",
        type=Path,
        metavar="FILE",
        help="which cluster, for --diff (as kubectl finds it)",
    )


def run(arguments: argparse.Namespace) -> int:
    if not all_there(arguments.files, command="render"):
        return 2
    try:
        from giveway_operator.file_rendering import render_files
        from giveway_operator.kube_client import ConfigurationError, KubeError
    except ImportError as error:
        return tell_missing_part("render", error)
    try:
        found = render_files(
            arguments.files,
            namespace=arguments.namespace,
            compare_with=arguments.kubeconfig,
            compares=arguments.diff,
        )
    except (ConfigurationError, KubeError) as error:
        sys.stderr.write(f"giveway render: {error}\n")
        return 1
    for line in (*found.notes, *found.faults):
        sys.stderr.write(f"{line}\n")
    sys.stdout.write(found.text)
    return 1 if found.faults or (arguments.diff and found.text) else 0
