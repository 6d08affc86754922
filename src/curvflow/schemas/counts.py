"""Numbers of things, for forms that check what they are given."""

from typing import Annotated

from pydantic import Field

Count = Annotated[int, Field(ge=1)]
