"""Real files are brought into the published form before tests read them."""

from tests.flows.published.fakes import pictures, ten_contents
from tests.published import binary_batches


def test_pictures_become_the_binary_batches():
    contents = ten_contents()
    assert binary_batches(pictures(contents)) == contents
