import collections
import datetime
import unicodedata

import pytest
from babel import Locale

from keras_synth.data.dates import FIRST_DATE, LAST_DATE, date_pairs, write_date


@pytest.fixture(scope="module")
def pairs():
    return date_pairs(train=6_000, validation=500, test=500)


def test_pairs_are_dates_of_the_range(pairs):
    assert {split: len(rows) for split, rows in pairs.items()} == {
        "train": 6_000,
        "validation": 500,
        "test": 500,
    }
    for text, iso in pairs["train"]:
        date = datetime.date.fromisoformat(iso)
        assert FIRST_DATE <= date <= LAST_DATE
        digits = "".join(str(unicodedata.digit(char, "")) for char in text)
        assert str(date.year) in digits


def test_no_date_is_in_two_splits():
    pairs = date_pairs(train=40_000, validation=5_000, test=5_000)
    train, validation, test = ({iso for _, iso in rows} for rows in pairs.values())
    assert not train & validation
    assert not train & test
    assert not validation & test


def test_seed_decides():
    sizes = {"train": 50, "validation": 5, "test": 5}
    assert date_pairs(seed=3, **sizes) == date_pairs(seed=3, **sizes)
    assert date_pairs(seed=3, **sizes) != date_pairs(seed=4, **sizes)


def test_many_scripts(pairs):
    letters = {char for text, _ in pairs["train"] for char in text if char.isalpha()}
    scripts = {unicodedata.name(char).split()[0] for char in letters}
    assert scripts >= {
        *("LATIN", "CYRILLIC", "GREEK", "ARABIC", "HEBREW", "DEVANAGARI", "BENGALI", "TAMIL"),
        *("TELUGU", "MALAYALAM", "GURMUKHI", "THAI", "MYANMAR", "GEORGIAN", "ARMENIAN"),
        *("ETHIOPIC", "CJK", "HANGUL"),
    }


@pytest.mark.parametrize(
    "locale, style, text",
    [
        ("en", "full", "Thursday, March 4, 2021"),
        ("de", "long", "4. März 2021"),
        ("ar_EG", "long", "٤ مارس ٢٠٢١"),
        ("fa", "medium", "۴ مارس ۲۰۲۱"),
        ("mr", "long", "४ मार्च, २०२१"),
        ("th", "medium", "4 มี.ค. 2021"),
        ("ja", "long", "2021年3月4日"),
    ],
)
def test_dates_are_written_as_people_do(locale, style, text):
    assert write_date(datetime.date(2021, 3, 4), style, Locale.parse(locale)) == text


def test_no_text_means_two_dates(pairs):
    meanings = collections.defaultdict(set)
    for text, iso in [row for rows in pairs.values() for row in rows]:
        meanings["".join(filter(str.isalnum, text.casefold()))].add(iso)
    assert all(len(isos) == 1 for isos in meanings.values())


def test_ambiguous_texts_are_left_out():
    texts = {text for text, _ in date_pairs()["train"]}
    assert any("października" in text for text in texts)
    assert any(text.startswith("środa") and "listopada" in text for text in texts)
    # October in Croatian, November in Polish, unless the day of the week or of the month tells.
    unclear = {text for text in texts if text[0].isdigit() and "listopada" in text}
    assert all(text.startswith("31.") for text in unclear)


def test_numeric_dates_start_with_the_year(pairs):
    for text, _ in pairs["train"]:
        if not any(char.isalpha() for char in text):
            assert text[:4].isdigit()
