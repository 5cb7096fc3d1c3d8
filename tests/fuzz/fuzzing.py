"""`make fuzz`: do our parsers hold for what a fuzzer makes up that watches which lines it reaches?

    python -m tests.fuzz.fuzzing request SECONDS
    python -m tests.fuzz.fuzzing answer SECONDS

atheris (libFuzzer) with the seeds and the words of `seeds`; what it finds worth keeping stays in
`.fuzz/`, and an input that fails is written there as `crash-...`.
"""

import sys
from pathlib import Path

import atheris

with atheris.instrument_imports(include=["giveway_admission"]):
    from tests.fuzz import answer_side, request_side, seeds

FOLDER = Path(".fuzz")
CHECKS = {
    "request": (request_side.check, seeds.REQUESTS),
    "answer": (answer_side.check, seeds.ANSWERS),
}


def main() -> None:
    side, seconds = sys.argv[1], int(sys.argv[2])
    check, streams = CHECKS[side]
    corpus = FOLDER / side
    corpus.mkdir(parents=True, exist_ok=True)
    for number, data in enumerate(seeds.inputs(streams)):
        (corpus / f"seed-{number}").write_bytes(data)
    words = FOLDER / "words"
    words.write_text("".join(f'"{escaped(word)}"\n' for word in seeds.WORDS))
    atheris.Setup(
        [
            sys.argv[0],
            str(corpus),
            f"-max_total_time={seconds}",
            f"-dict={words}",
            f"-artifact_prefix={FOLDER}/",
            *("-max_len=8192", "-timeout=20", "-rss_limit_mb=2048", "-print_final_stats=1"),
        ],
        check,
    )
    atheris.Fuzz()


def escaped(word: bytes) -> str:
    return "".join(f"\\x{byte:02x}" for byte in word)


if __name__ == "__main__":
    main()
