"""A subword tokenizer for one or more languages, and its training."""

import io
import pathlib
from collections.abc import Iterable, Iterator

import keras
import keras_hub
import sentencepiece
import tensorflow as tf

# Where KerasHub saves the proto.
VOCABULARY_FILE = "vocabulary.spm"


@keras.saving.register_keras_serializable("keras_synth")
class SynthesizerTokenizer(keras_hub.tokenizers.SentencePieceTokenizer):
    """A SentencePiece tokenizer with the special tokens `<pad>`, `<s>` and `</s>`.

    A special token that stands in a text is split like any other text: no text yields its id.
    Detokenizing gives back what was tokenized, but for spaces: those at either end of a text are
    dropped, runs of them become one, and `▁` (U+2581), by which SentencePiece writes a space, is one.

    Args:
        proto: Either a string path to a SentencePiece proto file, or a `bytes` object with a
            serialized SentencePiece proto, such as `train_tokenizer` makes. The id of its
            `<pad>` must be 0.
        **kwargs: The arguments of `keras_hub.tokenizers.SentencePieceTokenizer`.

    Example:

    >>> tokenizer = train_tokenizer(["the quick brown fox"] * 9, vocabulary_size=300)
    >>> tokenizer.detokenize(tokenizer("the fox"))
    'the fox'
    """

    def __init__(self, proto=None, **kwargs):
        self._add_special_token("<s>", "start_token")
        self._add_special_token("</s>", "end_token")
        self._add_special_token("<pad>", "pad_token")
        super().__init__(proto=proto, **kwargs)

    def _maybe_initialized_tf(self):
        super()._maybe_initialized_tf()
        # TensorFlow forgets all models of SentencePiece when a global seed is set.
        with tf.init_scope():
            try:
                self._sentence_piece.vocab_size()
            except tf.errors.NotFoundError:
                self._set_proto_tf(self.proto)

    def load_assets(self, dir_path):
        # KerasHub passes on the path, which Keras takes for a file from outside of the archive.
        self.set_proto(pathlib.Path(dir_path, VOCABULARY_FILE).read_bytes())

    def set_proto(self, proto):
        super().set_proto(proto)
        if proto is not None and self.pad_token_id != 0:
            raise ValueError(
                f"{type(self).__name__} needs a `proto` whose '<pad>' has the id 0. "
                f"Received: a proto where it has the id {self.pad_token_id}"
            )


def train_tokenizer(
    texts: Iterable[str | bytes] | tf.data.Dataset,
    vocabulary_size: int,
    split_digits: bool = False,
) -> SynthesizerTokenizer:
    """Trains a tokenizer, one for all the languages in the texts.

    The pieces are those of a SentencePiece unigram model that knows every character of the
    texts. Other characters fall back to their bytes, so that no text is unknown, and texts are
    not normalized, but for spaces, see `SynthesizerTokenizer`. The same texts give the same
    tokenizer.

    Args:
        texts: iterable of strings or UTF-8 bytes, or a `tf.data.Dataset` of scalar strings.
        vocabulary_size: int. The largest number of pieces, of which 260 are the special tokens
            and the bytes. Few texts may need fewer pieces.
        split_digits: bool. Whether each digit is a piece of its own, which helps where digits
            are to be copied or computed with. Defaults to `False`.

    Returns:
        A `SynthesizerTokenizer`.

    Raises:
        ValueError: If there are no texts, a text is not a string, or the vocabulary is too small
            to hold every character.

    Example:

    >>> tokenizer = train_tokenizer(["one fox", "two foxes"] * 9, vocabulary_size=300)
    >>> tokenizer.pad_token_id, tokenizer.start_token_id, tokenizer.end_token_id
    (0, 2, 3)
    """
    proto = io.BytesIO()
    try:
        sentencepiece.SentencePieceTrainer.train(
            sentence_iterator=_checked(texts),
            model_writer=proto,
            model_type="unigram",
            vocab_size=vocabulary_size,
            hard_vocab_limit=False,
            character_coverage=1.0,
            byte_fallback=True,
            split_digits=split_digits,
            normalization_rule_name="identity",
            max_sentence_length=1_000_000,  # In bytes. SentencePiece skips longer texts silently.
            pad_id=0,
            unk_id=1,
            bos_id=2,
            eos_id=3,
            minloglevel=2,
        )
    except RuntimeError as error:
        reason = str(error).splitlines()[0].split("] ")[-1] or "There is no text."
        raise ValueError(
            "`train_tokenizer` could not train with these texts. "
            f"Received: vocabulary_size={vocabulary_size}. SentencePiece says: {reason}"
        ) from error
    return SynthesizerTokenizer(proto.getvalue())


def _checked(texts: Iterable[str | bytes] | tf.data.Dataset) -> Iterator[str | bytes]:
    """Yields the texts, and stops with an error at the first that is not a string."""
    if isinstance(texts, (str, bytes)):
        raise ValueError(
            "The `texts` of `train_tokenizer` must be several strings or a `tf.data.Dataset`. "
            f"Received: the single text {texts[:80]!r}"
        )
    if isinstance(texts, tf.data.Dataset):
        texts = texts.as_numpy_iterator()
    for text in texts:
        if not isinstance(text, (str, bytes)):
            raise ValueError(
                "The `texts` of `train_tokenizer` must be single strings. "
                f"Received: {text!r} of type {type(text).__name__}"
            )
        yield text
