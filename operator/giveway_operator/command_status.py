"""Which policy, weights, attainment, budget, pods? `giveway status`, from the resources' status."""

import argparse
import sys
from pathlib import Path

from giveway_operator.missing_parts import tell_missing_part

DESCRIPTION = """\
Show how the SLOPolicies of a cluster stand: what is published and run, each class's weight,
attainment and error budget, and every condition that is not as it should be."""
EPILOG = """\
example:
  giveway status --namespace llm --explain

Exit codes: 0 all are published and no objective is missed, 1 otherwise or no answer of the API
server, 2 wrong use."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Nothing is imported here but the parser, so that --help answers at once."""
    parser.description = DESCRIPTION
    parser.epilog = EPILOG
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("policy", nargs="?", metavar="NAME", help="one policy alone (all)")
    parser.add_argument("--namespace", metavar="NAME", help="where (the whole cluster)")
    parser.add_argument("--explain", action="store_true", help="with the last decision's inputs")
    parser.add_argument(
        "--kubeconfig", type=Path, metavar="FILE", help="which cluster (as kubectl finds it)"
    )
    parser.add_argument(
        "-o",
        "--output",
        choices=("table", "json", "yaml"),
        default="table",
        help="how it is written (default: table)",
    )


def run(arguments: argparse.Namespace) -> int:
    try:
        from giveway_operator.asking_once import ask_once
        from giveway_operator.kube_client import SLO_POLICIES, ConfigurationError, KubeError
        from giveway_operator.status_telling import is_well, tell_policies
    except ImportError as error:
        return tell_missing_part("status", error)
    try:
        namespace = arguments.namespace
        found = ask_once(
            arguments.kubeconfig, lambda api: api.list(SLO_POLICIES, namespace=namespace)
        )
    except (ConfigurationError, KubeError) as error:
        sys.stderr.write(f"giveway status: {error}\n")
        return 1
    wanted = arguments.policy
    policies = [each for each in found if wanted in (None, each["metadata"]["name"])]
    if not policies:
        where = f"the namespace {namespace}" if namespace else "the cluster"
        what = f"SLOPolicy {wanted}" if wanted else "SLOPolicy"
        sys.stderr.write(f"giveway status: there is no {what} in {where}\n")
        return 1
    if arguments.output == "table":
        sys.stdout.write(tell_policies(policies, explains=arguments.explain))
    else:
        sys.stdout.write(_plain([dict(each) for each in policies], arguments.output))
    return 0 if all(map(is_well, policies)) else 1


def _plain(policies: list[dict[str, object]], output: str) -> str:
    if output == "json":
        import json

        return json.dumps(policies, indent=2, ensure_ascii=False) + "\n"
    import yaml

    return str(yaml.safe_dump(policies, sort_keys=False, allow_unicode=True))
