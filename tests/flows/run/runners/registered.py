"""What a worker imports to know the kinds of these tests."""

from tests.flows.run.runners.acts import register

register()
