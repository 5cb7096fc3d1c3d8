"""Are these policies right? `giveway lint FILES...`, offline.

The same reading, checks and compiling as in a proxy and in the operator, so that what passes here
takes effect there. Faults go to stdout, everything else to stderr.
"""

import argparse
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from giveway_policy.faults import Fault
    from giveway_policy.loading import Loading

DESCRIPTION = """\
Check SLOPolicy and TenantPriority resources without a cluster. Every fault is told with file,
line, path, reason and fix. Other kinds of resources are ignored."""
EPILOG = """\
example:
  giveway lint examples/

Exit codes: 0 no fault, 1 faults, 2 wrong use."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Nothing is imported here but the parser, so that --help answers at once."""
    parser.description = DESCRIPTION
    parser.epilog = EPILOG
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("files", nargs="+", type=Path, metavar="FILE", help="a file or a folder")
    parser.add_argument(
        "-o",
        "--output",
        choices=("table", "json", "yaml"),
        default="table",
        help="how faults are written (default: table, one a line)",
    )


def run(arguments: argparse.Namespace) -> int:
    if not all_there(arguments.files, command="lint"):
        return 2
    loading = load_paths(arguments.files)
    faults, notes = lint(loading)
    sys.stdout.write(_written(faults, arguments.output))
    for note in notes:
        sys.stderr.write(f"note: {note}\n")
    places = ", ".join(str(path) for path in arguments.files)
    sys.stderr.write(_summary(loading, faults, places=places))
    return 1 if faults or not (loading.policies or loading.tenants) else 0


def all_there(paths: list[Path], *, command: str) -> bool:
    """Whether each file and folder is there; each that is not is told."""
    missing = [path for path in paths if not path.exists()]
    for path in missing:
        sys.stderr.write(f"giveway {command}: there is no file or folder {path}\n")
    return not missing


def load_paths(paths: list[Path]) -> "Loading":
    """Everything in all files and folders together, as if it lay in one folder."""
    from giveway_policy.loading import Loading, load_path

    whole = Loading()
    for path in dict.fromkeys(paths):
        part = load_path(path)
        whole.policies += part.policies
        whole.tenants += part.tenants
        whole.faults += part.faults
        whole.notes += part.notes
    return whole


def lint(loading: "Loading") -> "tuple[tuple[Fault, ...], list[str]]":
    """All faults, each once, by file and line; and what is worth a note."""
    from giveway_policy.compiling import compile_policies

    compilation = compile_policies(loading.policies, loading.tenants)
    faults = dict.fromkeys([*loading.faults, *compilation.faults])
    notes = [str(note) for note in loading.notes]
    if len(compilation.documents) > 1:
        notes.append("several SLOPolicies: giveway serve takes one of them, see --policy-name")
    left_out = {each.resource for each in compilation.misfits}
    for tenant in loading.tenants:
        if tenant.key in left_out:
            name = tenant.resource.spec.tenant
            homes = [
                str(each.policy)
                for each in compilation.documents
                if name in {one.name for one in each.tenants}
            ]
            notes.append(f"{tenant.key} is for {', '.join(homes)}: others lack its classes")
    return tuple(sorted(faults, key=lambda each: (each.file, each.line or 0))), notes


def _written(faults: "tuple[Fault, ...]", output: str) -> str:
    if output == "table":
        return "".join(f"{fault}\n" for fault in faults)
    plain = [_plain(fault) for fault in faults]
    if output == "json":
        return json.dumps(plain, indent=2, ensure_ascii=False) + "\n"
    import yaml

    return str(yaml.safe_dump(plain, sort_keys=False, allow_unicode=True))


def _plain(fault: "Fault") -> dict[str, str | int | None]:
    return {
        "kind": fault.kind.value,
        "file": fault.file,
        "line": fault.line,
        "resource": str(fault.resource) if fault.resource is not None else None,
        "path": fault.path,
        "reason": fault.reason,
        "fix": fault.fix,
    }


def _summary(loading: "Loading", faults: "tuple[Fault, ...]", *, places: str) -> str:
    policies, tenants = len(loading.policies), len(loading.tenants)
    if faults:
        return f"{_counted(len(faults), 'fault', 'faults')}\n"
    if not policies and not tenants:
        return f"{places}: there is neither an SLOPolicy nor a TenantPriority in it\n"
    found = (
        f"{_counted(policies, 'SLOPolicy', 'SLOPolicies')}, "
        f"{_counted(tenants, 'TenantPriority', 'TenantPriorities')}: no fault\n"
    )
    if not policies:
        found += "note: no SLOPolicy among them, so classes could not be compared\n"
    return found


def _counted(number: int, one: str, many: str) -> str:
    return f"{number} {one if number == 1 else many}"
