"""Pairs of a text and its translation: built in, from TensorFlow Datasets, or from text files."""

import gzip
import pathlib
import zlib
from collections.abc import Callable, Iterable
from typing import NamedTuple

import tensorflow as tf

from keras_synth.data.dates import date_pairs

VALIDATION_SPLITS = ("val", "valid", "validation", "dev")
MAX_WORDS = 1_000


class Pairs(NamedTuple):
    """The splits of a translation data set.

    Each is a finite, unbatched `tf.data.Dataset` of known cardinality. Its elements are
    `{"encoder_text": text, "decoder_text": translation}`, both scalar strings, which is what a
    `keras_hub.models.Seq2SeqLMPreprocessor` takes.
    """

    train: tf.data.Dataset
    validation: tf.data.Dataset
    test: tf.data.Dataset


def load_pairs(spec: str, source: str = "en", target: str = "de") -> Pairs:
    """Loads the pairs of texts to train and test a translation model with.

    A data set needs a split `train`, and a validation split (`val`, `valid`, `validation` or
    `dev`) or a test split (the first whose name starts with `test`). Where one of these two is
    missing, the other stands in for it.

    Args:
        spec: string. What to load:

            - `"dates"`: the built-in `date_pairs`, where `source` and `target` do not matter.
            - `"tfds:NAME"` or `"tfds:NAME/CONFIG"`, as `"tfds:wmt14_translate/de-en"`: a
              data set of TensorFlow Datasets that is keyed by language. It is downloaded into
              `TFDS_DATA_DIR` unless it is there.
            - Otherwise a directory of UTF-8 text files `<split>.<language>` or
              `<split>.<language>.gz`. Line by line, the file of one language translates the
              file of the other.
        source: string. The language to translate from, as the data set names it.
        target: string. The language to translate to.

    Returns:
        A `Pairs` tuple `(train, validation, test)`.

    Raises:
        ValueError: If something is missing, cannot be read, or does not match.

    Example:

    >>> train, validation, test = load_pairs("dates")
    >>> len(train)
    60000
    """
    if source == target:
        raise ValueError(
            f"`source` and `target` must be two languages. Received: source={source!r}, target={target!r}"
        )
    if spec == "dates":
        splits = date_pairs()
        return Pairs(**{split: _dataset(*zip(*splits[split], strict=True)) for split in splits})
    if spec.startswith("tfds:"):
        return _tfds_pairs(spec.removeprefix("tfds:"), source, target)
    return _file_pairs(pathlib.Path(spec), source, target)


def _dataset(sources: Iterable[str], targets: Iterable[str]) -> tf.data.Dataset:
    return tf.data.Dataset.from_tensor_slices(
        {"encoder_text": list(sources), "decoder_text": list(targets)}
    )


def _choose_splits(found: Iterable[str], where: str, load: Callable[[str], tf.data.Dataset]) -> Pairs:
    """Loads the splits of a data set that serve for training, validation and testing."""
    found = sorted(found)
    validation = next((split for split in VALIDATION_SPLITS if split in found), None)
    test = next((split for split in found if split.startswith("test")), None)
    if "train" not in found or not (validation or test):
        raise ValueError(
            f"{where} must have a split 'train', and one of {', '.join(VALIDATION_SPLITS)} or "
            f"test*. Received: {', '.join(found) or 'no splits'}"
        )
    return Pairs(load("train"), load(validation or test), load(test or validation))


def _tfds_pairs(name: str, source: str, target: str) -> Pairs:
    import tensorflow_datasets as tfds  # Slow to import, and needed here alone.

    try:
        builder = tfds.builder(name)
    except ValueError as error:
        raise ValueError(
            "After 'tfds:', `spec` must name a data set, and if need be its configuration, of "
            f"https://www.tensorflow.org/datasets/catalog. Received: spec='tfds:{name}'"
        ) from error
    languages = sorted(builder.info.features)
    for language in (source, target):
        if language not in languages:
            raise ValueError(
                f"The data set 'tfds:{name}' has no texts for the language {language!r}. "
                f"It has: {', '.join(languages)}"
            )
    if not builder.is_prepared():
        try:
            builder.download_and_prepare()
        except Exception as error:  # Of any kind: each data set has a download of its own.
            raise ValueError(
                f"The data set 'tfds:{name}' cannot be downloaded. Prepare it elsewhere with "
                "TensorFlow Datasets and set the environment variable TFDS_DATA_DIR to the "
                f"folder; now it is looked for in {builder.data_dir}. Received: "
                f"{type(error).__name__}: {' '.join(str(error).split())}"
            ) from error

    def load(split: str) -> tf.data.Dataset:
        return builder.as_dataset(split=split).map(
            lambda texts: {"encoder_text": texts[source], "decoder_text": texts[target]}
        )

    return _choose_splits(builder.info.splits, f"The data set 'tfds:{name}'", load)


def _file_pairs(folder: pathlib.Path, source: str, target: str) -> Pairs:
    if not folder.is_dir():
        raise ValueError(
            "`spec` must be 'dates', 'tfds:NAME/CONFIG' or an existing directory. "
            f"Received: {str(folder)!r}"
        )
    files = {}
    # In this order, `train.en` wins over `train.en.gz` where both exist.
    for path in sorted(folder.iterdir(), reverse=True):
        split, _, language = path.name.removesuffix(".gz").rpartition(".")
        files[split, language] = path
    for language in (source, target):
        if not any(language == found for _, found in files):
            raise ValueError(
                f"The directory {folder} has no file <split>.{language} or <split>.{language}.gz. "
                f"It has: {', '.join(path.name for path in files.values()) or 'no such files'}"
            )

    def load(split: str) -> tf.data.Dataset:
        for language in (source, target):
            if (split, language) not in files:
                raise ValueError(
                    f"The directory {folder} has no file {split}.{language} or "
                    f"{split}.{language}.gz, which the split {split!r} needs"
                )
        paths = files[split, source], files[split, target]
        sources, targets = map(_read_lines, paths)
        if len(sources) != len(targets):
            raise ValueError(
                "Parallel files must have the same number of lines. Received: "
                f"{paths[0]} with {len(sources)} and {paths[1]} with {len(targets)} lines"
            )
        return _dataset(sources, targets)

    splits = {split for split, language in files if language in (source, target)}
    return _choose_splits(splits, f"The directory {folder}", load)


def _read_lines(path: pathlib.Path) -> list[str]:
    """Reads a text file, decompressed if its name ends with `.gz`, and checks each line."""
    content = path.read_bytes()
    if path.suffix == ".gz":
        try:
            content = gzip.decompress(content)
        except (OSError, EOFError, zlib.error) as error:
            raise ValueError(f"The file {path} is not a whole gzip file: {error}") from error
    if not content:
        raise ValueError(f"The file {path} is empty, but must have one text a line")
    # Unlike str.splitlines, which also splits at characters that occur within texts.
    rows = content.removesuffix(b"\n").split(b"\n")
    lines = []
    for number, row in enumerate(rows, start=1):
        try:
            line = row.decode("utf-8").removesuffix("\r")
        except UnicodeDecodeError as error:
            raise ValueError(
                f"The file {path} must be UTF-8 text, but line {number} is not: {error}"
            ) from error
        words = len(line.split())
        if words > MAX_WORDS:
            raise ValueError(
                f"The file {path} has {words} words in line {number}; at most {MAX_WORDS} are allowed"
            )
        lines.append(line)
    return lines
