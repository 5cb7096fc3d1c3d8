"""`giveway lint`: faults to stdout, the rest to stderr, and an exit status that scripts can use."""

import argparse
import json
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from giveway_policy import command_lint

from tests.policy.policy_texts import BOTH, POLICY, TENANT


def _lint(*arguments: object) -> int:
    parser = argparse.ArgumentParser(prog="giveway lint")
    command_lint.add_arguments(parser)
    return command_lint.run(parser.parse_args([str(each) for each in arguments]))


def test_good_resources_give_0(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "a.yaml").write_text(BOTH)
    assert _lint(tmp_path) == 0
    out, err = capsys.readouterr()
    assert out == ""
    assert err == "1 SLOPolicy, 1 TenantPriority: no fault\n"


def test_faults_give_1_and_a_line_each(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """By file and line, from all files together."""
    (tmp_path / "b.yaml").write_text(POLICY.replace("kind: Batch", "kind: Bach"))
    (tmp_path / "a.yaml").write_text(TENANT.replace("weight: 4", "weight: 0"))
    assert _lint(tmp_path / "b.yaml", tmp_path / "a.yaml") == 1
    out, err = capsys.readouterr()
    first, second = out.splitlines()
    assert first.startswith(f"{tmp_path}/a.yaml:7: spec.weight: must be at least 1")
    assert second.startswith(f"{tmp_path}/b.yaml:11: spec.classes[1].kind: must be 'Interactive'")
    assert second.endswith("(did you mean Batch?)")
    assert err == "2 faults\n"


def test_a_tab_and_a_class_that_stands_twice_are_told_as_what_they_are(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """YAML parsers speak of a character; and nobody wants to read the same class twice."""
    (tmp_path / "a.yaml").write_text(POLICY.replace("  - name: batch", "\t- name: batch"))
    (tmp_path / "b.yaml").write_text(
        POLICY.replace("name: batch", "name: realtime") + "  sources:\n  - {source: a, class: x}\n"
    )
    assert _lint(tmp_path) == 1
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].endswith("(indent with spaces: this line begins with a tab)")
    assert lines[-1].endswith("there is no class x in the policy (use one of: realtime)")


@pytest.mark.parametrize("output", ["json", "yaml"])
def test_faults_can_be_processed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], output: str
) -> None:
    (tmp_path / "a.yaml").write_text(BOTH.replace("maximumClass: realtime", "maximumClass: gold"))
    assert _lint(tmp_path, "-o", output) == 1
    out = capsys.readouterr().out
    (fault,) = json.loads(out) if output == "json" else yaml.safe_load(out)
    # three lines of the policy's head, its spec of nine, dashes, then the tenant's sixth
    assert fault == {
        "kind": "meaning",
        "file": f"{tmp_path}/a.yaml",
        "line": len(POLICY.splitlines()) + 1 + 6,
        "resource": "TenantPriority acme",
        "path": "spec.maximumClass",
        "reason": "there is no class gold in the policy",
        "fix": "use one of: realtime, batch",
    }


def test_no_fault_is_an_empty_list(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "a.yaml").write_text(BOTH)
    assert _lint(tmp_path, "-o", "json") == 0
    assert capsys.readouterr().out == "[]\n"


def test_a_missing_file_gives_2(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert _lint(tmp_path / "nowhere.yaml") == 2
    assert "nowhere.yaml" in capsys.readouterr().err


def test_nothing_of_ours_gives_1(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A wrong folder in a pipeline must not look like a good one."""
    (tmp_path / "a.yaml").write_text("kind: ConfigMap\napiVersion: v1\n")
    assert _lint(tmp_path) == 1
    err = capsys.readouterr().err
    assert "ignored: kind ConfigMap" in err
    assert f"{tmp_path}: there is neither an SLOPolicy nor a TenantPriority in it" in err


def test_help_needs_nothing_but_the_parser() -> None:
    """It answers at once: neither pydantic nor YAML is loaded for it."""
    code = (
        "import argparse, sys; from giveway_policy import command_lint as lint; "
        "lint.add_arguments(argparse.ArgumentParser()); "
        "print(sorted({'pydantic', 'yaml'} & set(sys.modules)))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60
    )
    assert done.stdout == "[]\n"


def test_a_folder_may_hold_several_policies_with_their_tenants(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """What the help shows as its example has no fault."""
    examples = Path(__file__).parents[2] / "examples"
    assert _lint(examples) == 0
    out, err = capsys.readouterr()
    assert out == ""
    assert "note: TenantPriority acme is for llm/free-and-paid: others lack its classes" in err
    assert "note: several SLOPolicies: giveway serve takes one of them, see --policy-name" in err
    assert "3 SLOPolicies, 5 TenantPriorities: no fault" in err


def test_tenants_alone_are_checked_as_far_as_possible(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "a.yaml").write_text(TENANT)
    assert _lint(tmp_path) == 0
    assert "classes could not be compared" in capsys.readouterr().err
    (tmp_path / "a.yaml").write_text(TENANT.replace("tenant: acme", "tenant: other"))
    assert _lint(tmp_path) == 1
