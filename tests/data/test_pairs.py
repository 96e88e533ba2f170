import gzip

import pytest
import tensorflow_datasets as tfds

from keras_synth.data import Pairs, load_pairs


def write(folder, **files):
    """Writes files, whose names have `_` for the dot: `train_en` is the file `train.en`."""
    for name, content in files.items():
        content = content if isinstance(content, bytes) else content.encode()
        (folder / name.replace("_", ".")).write_bytes(content)


def read(dataset):
    return [
        (element["encoder_text"].decode(), element["decoder_text"].decode())
        for element in dataset.as_numpy_iterator()
    ]


@pytest.fixture
def folder(tmp_path):
    write(tmp_path, train_en="a fox\ntwo foxes\n", train_de="ein Fuchs\nzwei Füchse\n")
    write(tmp_path, val_en="a dog\n", val_de="ein Hund\n")
    write(tmp_path, test_en="a cat\n", test_de="eine Katze\n")
    return tmp_path


def error_of(spec, **languages):
    with pytest.raises(ValueError) as error:
        load_pairs(str(spec), **languages)
    message = str(error.value)
    assert "\n" not in message
    return message


def test_dates():
    pairs = load_pairs("dates")
    assert [len(split) for split in pairs] == [60_000, 1_000, 2_000]
    text, iso = read(pairs.test.take(1))[0]
    assert text and len(iso) == 10


def test_files(folder):
    pairs = load_pairs(str(folder))
    assert isinstance(pairs, Pairs)
    assert [len(split) for split in pairs] == [2, 1, 1]
    assert read(pairs.train) == [("a fox", "ein Fuchs"), ("two foxes", "zwei Füchse")]
    assert read(pairs.validation) == [("a dog", "ein Hund")]
    assert read(load_pairs(str(folder), source="de", target="en").test) == [("eine Katze", "a cat")]


def test_compressed_files(folder):
    for path in list(folder.iterdir()):
        (folder / f"{path.name}.gz").write_bytes(gzip.compress(path.read_bytes()))
        path.unlink()
    assert read(load_pairs(str(folder)).validation) == [("a dog", "ein Hund")]


def test_lines_end_at_newlines_alone(folder):
    write(folder, train_en="a\u2028b\x0cc\r\n\nd", train_de="x\r\n\ny\u0085z\n")
    assert read(load_pairs(str(folder)).train) == [
        ("a\u2028b\x0cc", "x"),
        ("", ""),
        ("d", "y\u0085z"),
    ]


def test_split_names(folder):
    for language in ("en", "de"):
        (folder / f"val.{language}").rename(folder / f"dev.{language}")
        (folder / f"test.{language}").rename(folder / f"test_2017.{language}")
        (folder / f"test_2016.{language}").write_text("first\n")
    pairs = load_pairs(str(folder))
    assert read(pairs.validation) == [("a dog", "ein Hund")]
    assert read(pairs.test) == [("first", "first")]


@pytest.mark.parametrize("missing, other", [("val", "a cat"), ("test", "a dog")])
def test_one_split_stands_in_for_the_other(folder, missing, other):
    for language in ("en", "de"):
        (folder / f"{missing}.{language}").unlink()
    pairs = load_pairs(str(folder))
    assert read(pairs.validation) == read(pairs.test)
    assert read(pairs.test)[0][0] == other


def test_no_splits_to_validate_and_test_with(folder):
    for path in [*folder.glob("val.*"), *folder.glob("test.*")]:
        path.unlink()
    assert "one of val, valid, validation, dev or test*. Received: train" in error_of(folder)


def test_no_split_to_train_with(folder):
    for path in folder.glob("train.*"):
        path.unlink()
    assert "must have a split 'train'" in error_of(folder)


def test_missing_directory(tmp_path):
    message = error_of(tmp_path / "nowhere")
    assert "'dates', 'tfds:NAME/CONFIG' or an existing directory" in message
    assert "nowhere" in message


def test_missing_file(folder):
    (folder / "val.de").unlink()
    assert "has no file val.de or val.de.gz" in error_of(folder)


def test_missing_language(folder):
    message = error_of(folder, target="fr")
    assert "no file <split>.fr or <split>.fr.gz" in message
    assert "train.en" in message


def test_empty_file(folder):
    write(folder, val_en="")
    message = error_of(folder)
    assert "val.en is empty" in message


def test_unequal_number_of_lines(folder):
    write(folder, train_en="a fox\n")
    message = error_of(folder)
    assert "train.en with 1 and" in message
    assert "train.de with 2 lines" in message


def test_not_utf8(folder):
    write(folder, train_de="ein Fuchs\nzwei Füchse\n".encode("latin-1"))
    message = error_of(folder)
    assert "train.de must be UTF-8 text, but line 2 is not" in message


@pytest.mark.parametrize("damage", [lambda data: data[:-12], lambda data: b"no gzip", lambda _: b""])
def test_damaged_gzip(folder, damage):
    (folder / "val.de").unlink()
    (folder / "val.de.gz").write_bytes(damage(gzip.compress(b"ein Hund\n")))
    assert "val.de.gz" in error_of(folder)


def test_too_long_line(folder):
    write(folder, val_en="fox " * 1_000)
    load_pairs(str(folder))
    write(folder, val_en="fox " * 1_001)
    assert "val.en has 1001 words in line 1; at most 1000" in error_of(folder)


def test_same_language_twice(folder):
    assert "Received: source='de', target='de'" in error_of(folder, source="de", target="de")


class TinyTranslation(tfds.core.GeneratorBasedBuilder):
    """A translation data set that needs no network."""

    VERSION = tfds.core.Version("1.0.0")

    def _info(self):
        return tfds.core.DatasetInfo(
            builder=self, features=tfds.features.Translation(languages=("de", "en"))
        )

    def _split_generators(self, dl_manager):
        return {"train": self._generate(3), "validation": self._generate(2)}

    def _generate_examples(self):
        raise NotImplementedError

    def _generate(self, count):
        for number in range(count):
            yield number, {"de": f"{number} Füchse", "en": f"{number} foxes"}


class UnreachableTranslation(TinyTranslation):
    def _split_generators(self, dl_manager):
        raise ConnectionError("no route\nto the host")


@pytest.fixture
def data_dir(tmp_path, monkeypatch):
    monkeypatch.setattr(tfds.core.constants, "DATA_DIR", str(tmp_path))
    return tmp_path


def test_tfds(data_dir):
    pairs = load_pairs("tfds:tiny_translation")
    assert [len(split) for split in pairs] == [3, 2, 2]
    assert ("1 foxes", "1 Füchse") in read(pairs.train)
    assert (data_dir / "tiny_translation").is_dir()


def test_wmt14_as_tfds_mocks_it(monkeypatch):
    # Mock data has no splits of its own.
    names = ("train", "validation", "test")
    splits = {name: tfds.core.SplitInfo(name=name, shard_lengths=[5], num_bytes=1) for name in names}
    monkeypatch.setattr(tfds.core.DatasetInfo, "splits", splits)
    with tfds.testing.mock_data(num_examples=5):
        pairs = load_pairs("tfds:wmt14_translate/de-en", source="en", target="de")
        for split in pairs:
            rows = list(split.as_numpy_iterator())
            assert len(rows) == 5
            assert all(row.keys() == {"encoder_text", "decoder_text"} for row in rows)
            assert all(isinstance(text, bytes) for row in rows for text in row.values())


def test_tfds_that_is_prepared_needs_no_download(data_dir, monkeypatch):
    tfds.builder("tiny_translation").download_and_prepare()
    monkeypatch.setattr(TinyTranslation, "download_and_prepare", None)
    assert len(load_pairs("tfds:tiny_translation").train) == 3


def test_tfds_that_cannot_be_downloaded(data_dir):
    message = error_of("tfds:unreachable_translation")
    assert "'tfds:unreachable_translation' cannot be downloaded" in message
    assert "TFDS_DATA_DIR" in message
    assert str(data_dir) in message
    assert "ConnectionError: no route to the host" in message


@pytest.mark.parametrize("name", ["no_such_data_set", "wmt14_translate/xx-yy", ""])
def test_unknown_tfds(name):
    assert f"Received: spec='tfds:{name}'" in error_of(f"tfds:{name}")


def test_tfds_without_the_language():
    message = error_of("tfds:wmt14_translate/de-en", target="fr")
    assert "no texts for the language 'fr'. It has: de, en" in message
