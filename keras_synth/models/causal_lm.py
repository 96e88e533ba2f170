"""The language model: `fit` on strings, `generate` strings that go on from prompts."""

import keras
import keras_hub
from keras import ops

from keras_synth.models.decoder_backbone import SynthesizerDecoderBackbone
from keras_synth.models.preprocessors import SynthesizerCausalLMPreprocessor
from keras_synth.models.task import GenerativeModel


@keras.saving.register_keras_serializable("keras_synth")
class SynthesizerCausalLM(GenerativeModel, keras_hub.models.CausalLM):
    """A language model with synthesized self-attention.

    Predicts each token from the tokens before it, as the language models in
    [Tay et al., 2021](https://arxiv.org/abs/2005.00743). `generate` uses the sampler that
    `compile(sampler=...)` was given, one of `keras_hub.samplers` or `keras_synth.models.BeamSampler`, and
    a cache: of the values alone, and of keys only where an alignment has keys. Padding has no part in the
    loss, nor in any metric.

    Args:
        backbone: A `keras_synth.models.SynthesizerDecoderBackbone`.
        preprocessor: A `keras_synth.models.SynthesizerCausalLMPreprocessor`, or `None` if inputs are
            preprocessed already.
        **kwargs: Keyword arguments of `keras_hub.models.CausalLM`.

    Example:

    >>> from keras_synth.data import train_tokenizer
    >>> texts = ["one two three", "four five six"]
    >>> tokenizer = train_tokenizer(texts, vocabulary_size=300)
    >>> backbone = SynthesizerDecoderBackbone(
    ...     tokenizer.vocabulary_size(), num_layers=1, num_heads=2, hidden_dim=16,
    ...     intermediate_dim=32, max_length=32,
    ... )
    >>> model = SynthesizerCausalLM(backbone, SynthesizerCausalLMPreprocessor(tokenizer, 32))
    >>> model.compile(keras.optimizers.Adam(1e-2), sampler="greedy")
    >>> history = model.fit(texts, batch_size=2, verbose=0)
    >>> model.generate("one").startswith("one")
    True
    """

    backbone_cls = SynthesizerDecoderBackbone
    preprocessor_cls = SynthesizerCausalLMPreprocessor

    def __init__(self, backbone, preprocessor=None, **kwargs):
        # === Layers ===
        self.backbone = backbone
        self.preprocessor = preprocessor

        # === Functional Model ===
        outputs = self.logits(backbone(backbone.input))
        super().__init__(inputs=backbone.input, outputs=outputs, **kwargs)

    def prefill(self, inputs):
        token_ids = inputs["token_ids"]
        cache = self.backbone.init_cache(*ops.shape(token_ids))
        return self.backbone.decode_with_cache(token_ids, cache, 0)
