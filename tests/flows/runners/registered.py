"""What a worker imports to know the kinds of these tests."""

from tests.flows.runners.acts import register

register()
