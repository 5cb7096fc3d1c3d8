"""How many clients does a limit of open files let in?"""

import pytest
from giveway_admission.file_limits import TooFewFilesError, clients_for_files


@pytest.mark.parametrize(
    ("files", "wanted", "clients"),
    [
        (32_896, 16_384, 16_384),  # 128 + 2 x 16,384
        (20_000, 16_384, 9_936),  # (20,000 - 128) / 2
        (1_024, 16_384, 448),
        (160, 16_384, 16),
        (160, 2, 2),
    ],
)
def test_each_client_takes_two_files_and_some_are_spare(
    files: int, wanted: int, clients: int
) -> None:
    """One to the client and one to the engine."""
    assert clients_for_files(files, wanted=wanted) == clients


def test_too_few_files_are_named_with_what_to_do() -> None:
    """However few clients are wanted: descriptors would run out before anybody is refused."""
    with pytest.raises(TooFewFilesError, match=r"only 159 files .* 160 at least.*ulimit -n"):
        clients_for_files(159, wanted=1)
