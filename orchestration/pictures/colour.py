"""The colour of a headline in pictures; it says no more than the headline's words."""

from domain.wording.headline import Headline, Tone
from orchestration.pictures.svg import DEEP_GREEN, DEEP_ORANGE, DEEP_VERMILION, INK, QUIET

_COLOURS: dict[Tone, str] = {
    "keep": DEEP_GREEN,
    "rollback": DEEP_VERMILION,
    "iterate": DEEP_ORANGE,
    "waiting": INK,
    "fault": INK,
    "none": QUIET,
}


def colour_of(headline: Headline) -> str:
    """Returns the colour in which a picture writes a headline and draws its estimate."""
    return _COLOURS[headline.tone]
