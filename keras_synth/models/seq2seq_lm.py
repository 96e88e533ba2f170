"""The sequence-to-sequence task: `fit` on pairs of strings, `generate` strings from strings."""

import keras
import keras_hub
from keras import ops

from keras_synth.models.encoder_decoder_backbone import SynthesizerEncoderDecoderBackbone
from keras_synth.models.preprocessors import SynthesizerSeq2SeqLMPreprocessor
from keras_synth.models.task import GenerativeModel


@keras.saving.register_keras_serializable("keras_synth")
class SynthesizerSeq2SeqLM(GenerativeModel, keras_hub.models.Seq2SeqLM):
    """A sequence-to-sequence language model with synthesized self-attention.

    Predicts each target token from the source and the target tokens before it. `generate` uses the
    sampler that `compile(sampler=...)` was given, one of `keras_hub.samplers` or
    `keras_synth.models.BeamSampler`, and caches: of the values alone, and of keys only where an alignment
    has keys. Padding has no part in the loss, nor in any metric.

    Text to text as in [Raffel et al., 2019](https://arxiv.org/abs/1910.10683) is this task, with the name
    of what is to be done at the beginning of the source, as in `"translate English to German: ..."`. Its
    pre-training is this task with a `keras_synth.models.SynthesizerSpanCorruptionPreprocessor`.

    Args:
        backbone: A `keras_synth.models.SynthesizerEncoderDecoderBackbone`.
        preprocessor: A `keras_synth.models.SynthesizerSeq2SeqLMPreprocessor`, or `None` if inputs are
            preprocessed already.
        **kwargs: Keyword arguments of `keras_hub.models.Seq2SeqLM`.

    Example:

    >>> import keras_hub
    >>> from keras_synth.data import train_tokenizer
    >>> pairs = {"encoder_text": ["one two", "three"], "decoder_text": ["eins zwei", "drei"]}
    >>> tokenizer = train_tokenizer(sum(pairs.values(), []), vocabulary_size=300)
    >>> backbone = SynthesizerEncoderDecoderBackbone(
    ...     tokenizer.vocabulary_size(), num_layers=1, num_heads=2, hidden_dim=16,
    ...     intermediate_dim=32, max_length=32,
    ... )
    >>> preprocessor = SynthesizerSeq2SeqLMPreprocessor(tokenizer, 32, 32)
    >>> model = SynthesizerSeq2SeqLM(backbone, preprocessor)
    >>> model.compile(keras.optimizers.Adam(1e-2), sampler=keras_hub.samplers.BeamSampler(2))
    >>> history = model.fit(pairs, batch_size=2, verbose=0)
    >>> len(model.generate(["one", "two"]))
    2
    """

    backbone_cls = SynthesizerEncoderDecoderBackbone
    preprocessor_cls = SynthesizerSeq2SeqLMPreprocessor
    side = "decoder_"

    def __init__(self, backbone, preprocessor=None, **kwargs):
        # === Layers ===
        self.backbone = backbone
        self.preprocessor = preprocessor

        # === Functional Model ===
        outputs = self.logits(backbone(backbone.input)["decoder_sequence_output"])
        super().__init__(inputs=backbone.input, outputs=outputs, **kwargs)

    def call_encoder(self, token_ids, padding_mask):
        """The encoder's output, `(batch, S, hidden_dim)`."""
        return self.backbone.encode(token_ids, padding_mask)

    def prefill(self, inputs, length):
        padding_mask, token_ids = inputs["encoder_padding_mask"], inputs["decoder_token_ids"]
        encoder_sequence = self.call_encoder(inputs["encoder_token_ids"], padding_mask)
        cache = self.backbone.init_cache(*ops.shape(token_ids), padding_mask)
        return self.backbone.decode_with_cache(token_ids, cache, 0, encoder_sequence, length)
