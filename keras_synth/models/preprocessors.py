"""Strings to tokens and back, for each task; and where what they make meets a backbone."""

import keras
import keras_hub
import tensorflow as tf

from keras_synth.data.masking_tokenizer import MaskingTokenizer
from keras_synth.data.span_corruption import corrupt_spans
from keras_synth.data.tokenizer import SynthesizerTokenizer
from keras_synth.models.decoder_backbone import SynthesizerDecoderBackbone
from keras_synth.models.encoder_backbone import SynthesizerEncoderBackbone
from keras_synth.models.encoder_decoder_backbone import SynthesizerEncoderDecoderBackbone

#: The arguments by which preprocessors of any class say so.
LENGTHS = ("encoder_sequence_length", "decoder_sequence_length", "sequence_length")


class FitsBackbone:
    """Mixin of the preprocessors, to stand before the class of KerasHub.

    What `from_preset` makes where the preset has no such preprocessor has sequences as long as the backbone
    of the preset takes them.
    """

    #: Those of `LENGTHS` that its class has.
    length_arguments = ("sequence_length",)

    def __init__(self, tokenizer, *args, **kwargs):
        for token in ("start", "end", "pad"):
            if not hasattr(tokenizer, f"{token}_token_id"):
                raise ValueError(
                    f"The `tokenizer` of {type(self).__name__} must have start, end and pad tokens, as "
                    "those of `keras_synth.data` and of the models of KerasHub have: for a vocabulary of "
                    "WordPiece, `keras_hub.tokenizers.BertTokenizer`. "
                    f"Received: a {type(tokenizer).__name__} without `{token}_token_id`"
                )
        #: Those that are defaults.
        self.default_lengths = tuple(
            name for name in self.length_arguments[len(args) :] if name not in kwargs
        )
        super().__init__(tokenizer, *args, **kwargs)

    @classmethod
    def _add_missing_kwargs(cls, loader, kwargs):
        kwargs = super()._add_missing_kwargs(loader, kwargs)
        max_length = loader.config["config"]["max_length"]
        return {**dict.fromkeys(cls.length_arguments, max_length), **kwargs}


def check_fit(preprocessor, backbone):
    """Checks that a backbone takes what a preprocessor makes.

    Args:
        preprocessor: A preprocessor of any class, or `None`. Lengths that it was not given are lowered to
            those of the backbone.
        backbone: A backbone of `keras_synth.models`.

    Raises:
        ValueError: If its sequences are longer than the `max_length` of the backbone, or its tokenizer has
            more tokens.
    """
    if preprocessor is None:
        return
    names = f"that of {type(backbone).__name__} '{backbone.name}'"
    for name in getattr(preprocessor, "default_lengths", ()):
        setattr(preprocessor, name, min(getattr(preprocessor, name), backbone.max_length))
    for name in LENGTHS:
        length = getattr(preprocessor, name, None)
        if length is not None and length > backbone.max_length:
            raise ValueError(
                f"`{name}` of {type(preprocessor).__name__} '{preprocessor.name}' must be at most "
                f"max_length={backbone.max_length}, {names}. Received: {name}={length}"
            )
    tokenizer = getattr(preprocessor, "tokenizer", None)
    size = _count_tokens(tokenizer)
    if size > backbone.vocabulary_size:
        raise ValueError(
            f"The tokenizer of {type(preprocessor).__name__} '{preprocessor.name}' must have at most "
            f"vocabulary_size={backbone.vocabulary_size} tokens, {names}. Received: "
            f"{type(tokenizer).__name__} with vocabulary_size()={size}, special tokens included"
        )


def _count_tokens(tokenizer):
    try:
        return 0 if tokenizer is None else tokenizer.vocabulary_size()
    except ValueError:  # its files have not been read yet
        return 0


class NoSegments:
    """Mixin: a KerasHub preprocessor for backbones that have no input `"segment_ids"`.

    Two sentences are told apart by the end token between them.
    """

    def call(self, x, y=None, sample_weight=None):
        outputs = super().call(x, y=y, sample_weight=sample_weight)
        x, y, sample_weight = keras.utils.unpack_x_y_sample_weight(outputs)
        x = {name: value for name, value in x.items() if name != "segment_ids"}
        return keras.utils.pack_x_y_sample_weight(x, y, sample_weight)


@keras.saving.register_keras_serializable("keras_synth")
class SynthesizerTextClassifierPreprocessor(
    NoSegments, FitsBackbone, keras_hub.models.TextClassifierPreprocessor
):
    """Tokenizes and packs strings for `keras_synth.models.SynthesizerTextClassifier`.

    Takes strings, or a tuple of two batches of strings, which are packed as
    `<s> first </s> second </s>`, see `keras_hub.models.TextClassifierPreprocessor`. Longer text is cut.

    Args:
        tokenizer: A tokenizer with start, end and pad tokens, such as
            `keras_synth.data.SynthesizerTokenizer`.
        sequence_length: int. The number of tokens of a text, or of two, with start and ends; at most the
            `max_length` of the backbone. Defaults to that, but at most `512`.
        **kwargs: `truncate`, `"round_robin"` by default or `"waterfall"`, and keyword arguments of
            `keras_hub.models.Preprocessor`.
    """

    backbone_cls = SynthesizerEncoderBackbone
    tokenizer_cls = SynthesizerTokenizer


@keras.saving.register_keras_serializable("keras_synth")
class SynthesizerMaskedLMPreprocessor(NoSegments, FitsBackbone, keras_hub.models.MaskedLMPreprocessor):
    """Tokenizes, packs and masks strings for `keras_synth.models.SynthesizerMaskedLM`.

    Takes strings, or a tuple of two batches of strings, see `keras_hub.models.MaskedLMPreprocessor`.
    Longer text is cut.

    Args:
        tokenizer: A tokenizer with start, end, pad and mask tokens, such as
            `keras_synth.data.masking_tokenizer.MaskingTokenizer`.
        sequence_length: int. The number of tokens of a text, or of two, with start and ends; at most the
            `max_length` of the backbone. Defaults to that, but at most `512`.
        **kwargs: `truncate`, `mask_selection_rate`, `mask_selection_length`, `mask_token_rate` and
            `random_token_rate` of `keras_hub.models.MaskedLMPreprocessor`, and keyword arguments of
            `keras_hub.models.Preprocessor`.

    Raises:
        ValueError: If the tokenizer has no mask token.
    """

    backbone_cls = SynthesizerEncoderBackbone
    tokenizer_cls = MaskingTokenizer

    def __init__(self, tokenizer, *args, **kwargs):
        if not hasattr(tokenizer, "mask_token"):
            raise ValueError(
                f"The `tokenizer` of {type(self).__name__} must have a mask token, as "
                "`keras_synth.data.masking_tokenizer.MaskingTokenizer` has. "
                f"Received: tokenizer={tokenizer}"
            )
        super().__init__(tokenizer, *args, **kwargs)


@keras.saving.register_keras_serializable("keras_synth")
class SynthesizerCausalLMPreprocessor(FitsBackbone, keras_hub.models.CausalLMPreprocessor):
    """Tokenizes and packs strings for `keras_synth.models.SynthesizerCausalLM`.

    Takes strings, see `keras_hub.models.CausalLMPreprocessor`. Longer text is cut.

    Args:
        tokenizer: A tokenizer with start, end and pad tokens, such as
            `keras_synth.data.SynthesizerTokenizer`.
        sequence_length: int. The number of tokens of a text, with start and end; at most the `max_length`
            of the backbone. Defaults to that, but at most `1024`.
        **kwargs: `add_start_token` and `add_end_token`, both `True` by default, and keyword arguments of
            `keras_hub.models.Preprocessor`.
    """

    backbone_cls = SynthesizerDecoderBackbone
    tokenizer_cls = SynthesizerTokenizer


@keras.saving.register_keras_serializable("keras_synth")
class SynthesizerSeq2SeqLMPreprocessor(FitsBackbone, keras_hub.models.Seq2SeqLMPreprocessor):
    """Tokenizes and packs pairs of strings for `keras_synth.models.SynthesizerSeq2SeqLM`.

    Takes a dict with `"encoder_text"` and `"decoder_text"`, see
    `keras_hub.models.Seq2SeqLMPreprocessor`. Longer text is cut.

    Args:
        tokenizer: A tokenizer with start, end and pad tokens, such as
            `keras_synth.data.SynthesizerTokenizer`.
        encoder_sequence_length: int. The number of tokens of the source, with start and end; at most the
            `max_length` of the backbone. Defaults to that, but at most `1024`.
        decoder_sequence_length: int. The number of tokens of the target, with start and end; at most the
            `max_length` of the backbone. Defaults to that, but at most `1024`.
        **kwargs: Keyword arguments of `keras_hub.models.Preprocessor`.
    """

    backbone_cls = SynthesizerEncoderDecoderBackbone
    tokenizer_cls = SynthesizerTokenizer
    length_arguments = ("encoder_sequence_length", "decoder_sequence_length")

    def get_config(self):
        return {
            **super().get_config(),
            "encoder_sequence_length": self.encoder_sequence_length,
            "decoder_sequence_length": self.decoder_sequence_length,
        }


@keras.saving.register_keras_serializable("keras_synth")
class SynthesizerSpanCorruptionPreprocessor(SynthesizerSeq2SeqLMPreprocessor):
    """Tokenizes strings, takes random spans out of them, and packs what is left and what is to be found.

    With it, `keras_synth.models.SynthesizerSeq2SeqLM` is pre-trained by `fit` on plain strings as T5 is,
    see [Raffel et al., 2019](https://arxiv.org/abs/1910.10683): the source is the text with a sentinel
    token for each span, the target is the spans, each after its sentinel. For fine-tuning, the model gets
    a `keras_synth.models.SynthesizerSeq2SeqLMPreprocessor` with the same tokenizer. Longer text is cut
    before spans are taken out.

    Args:
        tokenizer: A `keras_synth.data.masking_tokenizer.MaskingTokenizer`, or another tokenizer with
            start, end and pad tokens that has `num_sentinels` and `sentinel_ids`.
        encoder_sequence_length: int. The number of tokens of the text, with start and end; at most the
            `max_length` of the backbone. Defaults to that, but at most `512`.
        decoder_sequence_length: int. The number of tokens of the spans, with sentinels, start and end; at
            most the `max_length` of the backbone. Defaults to that, but at most `128`.
        noise_density: float. The share of the tokens that are taken out. Defaults to `0.15`.
        mean_span_length: float. The mean length of a span. Defaults to `3.0`.
        seed: int. The seed of the spans. Defaults to `None`.
        **kwargs: Keyword arguments of `keras_hub.models.Preprocessor`.

    Raises:
        ValueError: If the tokenizer has no sentinels.
    """

    tokenizer_cls = MaskingTokenizer

    def __init__(
        self,
        tokenizer,
        encoder_sequence_length=None,
        decoder_sequence_length=None,
        noise_density=0.15,
        mean_span_length=3.0,
        seed=None,
        **kwargs,
    ):
        if not hasattr(tokenizer, "num_sentinels"):
            raise ValueError(
                f"The `tokenizer` of {type(self).__name__} must have sentinels, as "
                "`keras_synth.data.masking_tokenizer.MaskingTokenizer` has. "
                f"Received: tokenizer={tokenizer}"
            )
        lengths = {
            "encoder_sequence_length": encoder_sequence_length,
            "decoder_sequence_length": decoder_sequence_length,
        }
        super().__init__(
            tokenizer, encoder_sequence_length or 512, decoder_sequence_length or 128, **kwargs
        )
        self.default_lengths = tuple(name for name, length in lengths.items() if length is None)
        self.noise_density = noise_density
        self.mean_span_length = mean_span_length
        self.seed = seed

    def call(self, x, y=None, sample_weight=None):
        x = tf.convert_to_tensor(x)
        tokens = self.tokenizer(tf.reshape(x, [-1]))
        if not isinstance(tokens, tf.RaggedTensor):  # outside of `tf.data` it returns lists
            tokens = tf.ragged.constant(tokens, "int32", ragged_rank=1)
        spec = tf.RaggedTensorSpec([None], tokens.dtype, ragged_rank=0)
        sources, targets = tf.map_fn(self._corrupt, tokens, fn_output_signature=(spec, spec))
        source, source_mask = self.encoder_packer(sources)
        target, target_mask = self.decoder_packer(targets, sequence_length=self.decoder_sequence_length + 1)
        outputs = (
            {
                "encoder_token_ids": source,
                "encoder_padding_mask": source_mask,
                "decoder_token_ids": target[:, :-1],
                "decoder_padding_mask": target_mask[:, :-1],
            },
            target[:, 1:],
            target_mask[:, 1:],
        )
        if x.shape.rank == 0:
            outputs = keras.tree.map_structure(lambda batch: batch[0], outputs)
        return outputs

    def _corrupt(self, token_ids):
        return corrupt_spans(
            token_ids[: self.encoder_sequence_length - 2],  # without start and end
            self.tokenizer.sentinel_ids,
            self.noise_density,
            self.mean_span_length,
            self.seed,
        )

    def get_config(self):
        return {
            **super().get_config(),
            "noise_density": self.noise_density,
            "mean_span_length": self.mean_span_length,
            "seed": self.seed,
        }
