"""Traces: samples are what TRACES.md says; an own file works or is refused clearly."""

from pathlib import Path

import pytest
from giveway_simulation.traces import Sample, TraceError, load_sample, parse_trace, read_trace


@pytest.mark.parametrize(
    ("sample", "rows", "mean_prompt", "mean_output"),
    [
        (Sample.CHAT, 10_108, 1243, 217),
        (Sample.CODE, 5_740, 2028, 27),
        (Sample.BATCH, 5_000, 2565, 305),
    ],
)
def test_samples_have_the_lengths_that_their_notes_state(
    sample: Sample, rows: int, mean_prompt: int, mean_output: int
) -> None:
    """TRACES.md and the files agree."""
    trace = load_sample(sample)
    assert len(trace) == rows
    assert round(sum(row.prompt_tokens for row in trace) / rows) == mean_prompt
    assert round(sum(row.output_tokens for row in trace) / rows) == mean_output


def test_arrivals_start_at_zero_and_never_go_back() -> None:
    """The rows of a timed sample are in the order of arrival over half an hour."""
    arrivals = [row.arrival_s for row in load_sample(Sample.CODE)]
    times = [arrival_s for arrival_s in arrivals if arrival_s is not None]
    assert len(times) == len(arrivals)
    assert times[0] == 0
    assert times == sorted(times)
    assert 1780 < times[-1] < 1800


@pytest.mark.parametrize(
    ("header", "line", "arrival_s", "tenant"),
    [
        ("TIMESTAMP,ContextTokens,GeneratedTokens", "2023-11-16 18:17:03.9799600,4,5", 0.0, None),
        ("t_s,client,input_tokens,output_tokens", "17.5,team-a,4,5", 0.0, "team-a"),
        ("num_prefill_tokens,num_decode_tokens,pd_ratio", "4,5,0.8", None, None),
        ("Timestamp,Model,Request tokens,Response tokens", "3,GPT-4,4,5", 0.0, None),
        ("timestamp,input_length,output_length", "3000,4.0,5", 0.0, None),
    ],
)
def test_published_formats_are_understood(
    header: str, line: str, arrival_s: float | None, tenant: str | None
) -> None:
    """The column names of public traces need no conversion."""
    (row,) = parse_trace([header, line], name="own.csv")
    assert (row.prompt_tokens, row.output_tokens) == (4, 5)
    assert row.arrival_s == arrival_s
    assert row.tenant == tenant


def test_rows_out_of_order_are_sorted_and_shifted_to_zero() -> None:
    """A trace glued from several logs is put in order."""
    rows = parse_trace(
        ["arrival_s,prompt_tokens,output_tokens", "12.5,1,1", "10.0,2,2", "", "11.0,3,3"], name="x"
    )
    assert [(row.arrival_s, row.prompt_tokens) for row in rows] == [(0.0, 2), (1.0, 3), (2.5, 1)]


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        ([], "own.csv: is empty"),
        (["time,prompt_tokens"], "own.csv:1: no column for the output length"),
        (["a,b"], "own.csv:1: no column for the prompt length"),
        (["prompt_tokens,output_tokens"], "own.csv: has a header and no rows"),
        (["prompt_tokens,output_tokens", "3,4", "7"], "own.csv:3: has 1 columns"),
        (["prompt_tokens,output_tokens", "3,many"], "own.csv:2: 'many' is not a number of tokens"),
        (["prompt_tokens,output_tokens", "-3,1"], "own.csv:2: '-3' is not a number of tokens"),
        (["prompt_tokens,output_tokens", "nan,1"], "own.csv:2: 'nan' is not a number of tokens"),
        (["t_s,prompt_tokens,output_tokens", "soon,1,1"], "own.csv:2: 'soon' is neither seconds"),
        (["t_s,prompt_tokens,output_tokens", "inf,1,1"], "own.csv:2: 'inf' is not a time"),
    ],
)
def test_a_bad_file_is_refused_with_file_line_and_reason(lines: list[str], message: str) -> None:
    """Whoever wrote the file learns what to mend."""
    with pytest.raises(TraceError) as caught:
        parse_trace(lines, name="own.csv")
    assert message in str(caught.value)


def test_a_missing_or_binary_file_is_refused_clearly(tmp_path: Path) -> None:
    """No traceback for a wrong path."""
    with pytest.raises(TraceError, match="cannot be read: No such file"):
        read_trace(tmp_path / "absent.csv")
    binary = tmp_path / "binary.csv"
    binary.write_bytes(b"\xff\xfe\x00\x81")
    with pytest.raises(TraceError, match="is not UTF-8 text"):
        read_trace(binary)


def test_a_file_with_a_byte_order_mark_is_read(tmp_path: Path) -> None:
    """Spreadsheets write one."""
    path = tmp_path / "own.csv"
    path.write_bytes("\ufeffprompt_tokens,output_tokens\r\n0,7\r\n".encode())
    (row,) = read_trace(path)
    assert (row.prompt_tokens, row.output_tokens) == (1, 7)
