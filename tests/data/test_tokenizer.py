import io

import keras
import numpy as np
import pytest
import sentencepiece
import tensorflow as tf

from keras_synth.data import SynthesizerTokenizer, train_tokenizer

TEXTS = ["the quick brown fox jumps in 2021", "der flinke braune Fuchs springt 2021"] * 20


@pytest.fixture(scope="module")
def tokenizer():
    return train_tokenizer(TEXTS, vocabulary_size=320)


def test_special_tokens(tokenizer):
    assert tokenizer.pad_token_id == 0
    assert tokenizer.start_token_id == tokenizer.token_to_id("<s>") == 2
    assert tokenizer.end_token_id == tokenizer.token_to_id("</s>") == 3
    assert tokenizer.vocabulary_size() <= 320


@pytest.mark.parametrize(
    "text",
    [
        "the brown Fuchs",
        "emoji 🎉👩‍🚀 and ½, １２",
        "سلام دنیا ۱۲۳",
        "二〇二一年三月四日，星期四。",
        "4 марта 2021\u202fг.",
        "",
    ],
)
def test_round_trip_of_any_text(tokenizer, text):
    ids = tokenizer(text)
    assert 1 not in ids  # The unknown token.
    assert tokenizer.detokenize(ids) == text
    in_graph = tf.function(tokenizer.tokenize)(tf.constant([text]))
    assert in_graph.to_list() == [list(ids)]
    assert tf.function(tokenizer.detokenize)(in_graph).numpy()[0].decode() == text


@pytest.mark.parametrize("text", [" the fox", "the fox ", "  the   fox  ", "the▁fox", "▁the fox▁"])
def test_spaces_are_all_that_is_normalized(tokenizer, text):
    assert tokenizer.detokenize(tokenizer(text)) == "the fox"


@pytest.mark.parametrize("text", ["</s>", "<pad>", "<s>", "the fox </s> <pad><s>", "<unk> <0x41>"])
def test_special_tokens_in_texts_are_plain_text(tokenizer, text):
    ids = tokenizer(text)
    assert not set(ids) & {0, 1, 2, 3}
    assert tokenizer.detokenize(ids) == text
    in_graph = tf.function(tokenizer.tokenize)(tf.constant([text]))
    assert in_graph.to_list() == [list(ids)]


def test_special_tokens_in_training_texts_are_plain_text():
    tokenizer = train_tokenizer(["a fox </s> <pad> <s>"] * 20, vocabulary_size=300)
    assert not set(tokenizer("</s> <pad> <s>")) & {0, 1, 2, 3}


def test_maps_a_dataset(tokenizer):
    dataset = tf.data.Dataset.from_tensor_slices(TEXTS[:2]).batch(2).map(tokenizer)
    assert next(iter(dataset)).to_list() == [list(tokenizer(text)) for text in TEXTS[:2]]


def test_training_is_deterministic_and_takes_datasets_and_bytes(tokenizer):
    dataset = tf.data.Dataset.from_tensor_slices(TEXTS)
    assert train_tokenizer(dataset, vocabulary_size=320).proto == tokenizer.proto
    texts = (text.encode() for text in TEXTS)
    assert train_tokenizer(texts, vocabulary_size=320).proto == tokenizer.proto


def test_long_texts_are_not_skipped():
    tokenizer = train_tokenizer(["fox " * 5_000], vocabulary_size=300)
    assert "▁fox" in tokenizer.get_vocabulary()


def test_split_digits():
    joined = train_tokenizer(TEXTS, vocabulary_size=320)
    split = train_tokenizer(TEXTS, vocabulary_size=320, split_digits=True)
    assert "2021" in joined.get_vocabulary() or "▁2021" in joined.get_vocabulary()
    assert not any("20" in piece for piece in split.get_vocabulary()[260:])


def test_config_and_assets_round_trip(tokenizer, tmp_path):
    config = keras.saving.serialize_keras_object(tokenizer)
    assert config["registered_name"] == "keras_synth>SynthesizerTokenizer"
    restored = keras.saving.deserialize_keras_object(config)
    tokenizer.save_assets(tmp_path)
    restored.load_assets(tmp_path)
    assert isinstance(restored, SynthesizerTokenizer)
    assert restored.proto == tokenizer.proto
    assert restored.end_token_id == 3
    np.testing.assert_array_equal(restored("the fox"), tokenizer("the fox"))


@keras.saving.register_keras_serializable("tests")
class ModelWithTokenizer(keras.Model):
    def __init__(self, tokenizer, **kwargs):
        super().__init__(**kwargs)
        self.tokenizer = tokenizer
        self.built = True

    def get_config(self):
        return {"tokenizer": keras.saving.serialize_keras_object(self.tokenizer)}

    @classmethod
    def from_config(cls, config):
        return cls(keras.saving.deserialize_keras_object(config["tokenizer"]))


def test_saves_within_a_model(tokenizer, tmp_path):
    ModelWithTokenizer(tokenizer).save(tmp_path / "model.keras")
    restored = keras.saving.load_model(tmp_path / "model.keras").tokenizer
    assert restored.proto == tokenizer.proto
    assert restored.start_token_id == 2


@pytest.mark.parametrize(
    "texts, message",
    [
        ([], "There is no text"),
        ([1], "must be single strings. Received: 1 of type int"),
        ("a fox", "must be several strings .* Received: the single text 'a fox'"),
    ],
)
def test_bad_texts(texts, message):
    with pytest.raises(ValueError, match=message):
        train_tokenizer(texts, vocabulary_size=300)


def test_too_small_vocabulary():
    with pytest.raises(ValueError, match="Received: vocabulary_size=100.*100 vs 2") as error:
        train_tokenizer(TEXTS, vocabulary_size=100)
    assert "\n" not in str(error.value)


def test_proto_with_another_pad_id():
    proto = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(TEXTS), model_writer=proto, vocab_size=36, pad_id=3, minloglevel=2
    )
    with pytest.raises(ValueError, match="'<pad>' has the id 0. Received: .* the id 3"):
        SynthesizerTokenizer(proto.getvalue())


@pytest.fixture
def set_seed():
    """Sets TensorFlow's global seed, as `keras.utils.set_random_seed` does, until the test ends."""
    yield tf.random.set_seed
    tf.random.set_seed(None)


def test_a_global_seed_leaves_the_tokenizer_as_it_is(set_seed):
    """TensorFlow then forgets the models of all tokenizers, so this one is not shared."""
    tokenizer = train_tokenizer(TEXTS, vocabulary_size=320)
    expected = list(tokenizer("the brown Fuchs"))
    dataset = tf.data.Dataset.from_tensor_slices(["the brown Fuchs"])
    set_seed(1)
    assert list(tokenizer("the brown Fuchs")) == expected
    set_seed(2)
    (tokens,) = dataset.map(tokenizer)
    assert tokens.numpy().tolist() == expected
    set_seed(3)
    assert tokenizer.detokenize(tf.constant(expected)) == "the brown Fuchs"
