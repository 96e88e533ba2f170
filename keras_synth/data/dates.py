"""Built-in translation data: dates as people write them, to be translated to ISO 8601."""

import datetime
import functools
import random
import unicodedata
from collections import defaultdict

from babel import Locale
from babel.dates import format_date, get_date_format

LOCALES = tuple(
    Locale.parse(name)
    for name in (
        "en de fr es pt nl sv pl cs hr hu tr vi sw "  # Latin
        "ru uk bg el "  # Cyrillic, Greek
        "ar_EG fa ur he "  # Arabic, Hebrew
        "hi mr bn pa ta te ml "  # Devanagari, Bengali, Gurmukhi, Tamil, Telugu, Malayalam
        "th my ka hy am "  # Thai, Burmese, Georgian, Armenian, Ethiopic
        "zh_Hans zh_Hant ja ko"  # Han (simplified, traditional), Japanese, Korean
    ).split()
)
STYLES = ("full", "long", "medium")

FIRST_DATE = datetime.date(1900, 1, 1)
LAST_DATE = datetime.date(2099, 12, 31)

# Babel writes all numbers in ASCII digits, also for locales that use digits of their own.
NATIVE_DIGITS = {
    "arab": "٠١٢٣٤٥٦٧٨٩",
    "arabext": "۰۱۲۳۴۵۶۷۸۹",
    "beng": "০১২৩৪৫৬৭৮৯",
    "deva": "०१२३४५६७८९",
    "mymr": "၀၁၂၃၄၅၆၇၈၉",
}


def date_pairs(
    seed: int = 0, train: int = 60_000, validation: int = 1_000, test: int = 2_000
) -> dict[str, list[tuple[str, str]]]:
    """Draws dates from 1900 to 2099 as people write them, each with its ISO 8601 form.

    The written forms come from Unicode CLDR: full, long and medium dates in more than thirty
    languages. Forms that could mean two dates, such as `04.03.2021`, are left out. The splits
    have no date in common, in whatever language it is written.

    Args:
        seed: int. The same seed gives the same pairs. Defaults to `0`.
        train: int. The number of training pairs. Defaults to `60_000`.
        validation: int. The number of validation pairs. Defaults to `1_000`.
        test: int. The number of test pairs. Defaults to `2_000`.

    Returns:
        A dict from split (`"train"`, `"validation"`, `"test"`) to a list of `(text, iso)`.

    Example:

    >>> pairs = date_pairs(train=100, validation=10, test=10)
    >>> len(pairs["train"])
    100
    """
    rng = random.Random(seed)
    days = (LAST_DATE - FIRST_DATE).days + 1
    dates = [FIRST_DATE + datetime.timedelta(day) for day in range(days)]
    rng.shuffle(dates)
    tenth = days // 10

    def draw(dates: list[datetime.date], count: int) -> list[tuple[str, str]]:
        pairs = []
        while len(pairs) < count:
            date = rng.choice(dates)
            locale, style = rng.choice(_forms())
            if (locale, style, date.month, date.day) not in _ambiguous():
                pairs.append((write_date(date, style, locale), date.isoformat()))
        return pairs

    return {
        "train": draw(dates[2 * tenth :], train),
        "validation": draw(dates[tenth : 2 * tenth], validation),
        "test": draw(dates[:tenth], test),
    }


def write_date(date: datetime.date, style: str, locale: Locale) -> str:
    """Writes a date as people do in a locale, in the digits of the locale.

    Args:
        date: datetime.date. The date to write.
        style: string. One of `"full"`, `"long"` and `"medium"`.
        locale: babel.Locale. The language, with a script or country where it matters.

    Returns:
        A string.

    Example:

    >>> write_date(datetime.date(2021, 3, 4), "full", Locale.parse("en"))
    'Thursday, March 4, 2021'
    """
    text = format_date(date, style, locale)
    system = locale.default_numbering_system
    if system == "latn":
        return text
    return text.translate(str.maketrans("0123456789", NATIVE_DIGITS[system]))


@functools.cache
def _forms() -> list[tuple[Locale, str]]:
    """The forms with a four-digit year whose day and month cannot be mistaken for each other."""
    forms = []
    for locale in LOCALES:
        for style in STYLES:
            pattern = get_date_format(style, locale).format
            short_year = "%(yy)s" in pattern
            numeric_month = "%(M)s" in pattern or "%(MM)s" in pattern
            if not short_year and (not numeric_month or pattern.startswith("%(y)s")):
                forms.append((locale, style))
    return forms


@functools.cache
def _ambiguous() -> set[tuple[Locale, str, int, int]]:
    """Each locale, style, month and day whose text means another date in some other form.

    Such as the Croatian for 4 October and the Polish for 4 November: "4 listopada". Texts are
    compared by their letters and digits alone, since people are free with case and punctuation.
    A leap year and a common year tell all, because the year itself stands in every text.
    """
    uses = defaultdict(set)
    for day in range((datetime.date(2022, 1, 1) - datetime.date(2020, 1, 1)).days):
        date = datetime.date(2020, 1, 1) + datetime.timedelta(day)
        for locale, style in _forms():
            text = format_date(date, style, locale).casefold()
            uses["".join(filter(_is_letter_or_digit, text))].add((date, locale, style))
    return {
        (locale, style, date.month, date.day)
        for group in uses.values()
        if len({date for date, _, _ in group}) > 1
        for date, locale, style in group
    }


def _is_letter_or_digit(character: str) -> bool:
    """Letters, digits, and the marks that many scripts write vowels with."""
    return unicodedata.category(character)[0] in "LMN"
