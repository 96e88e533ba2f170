"""The language model: `fit` on strings, `generate` strings that go on from prompts."""

import keras
import keras_hub
from keras import ops

from keras_synth.core.checks import check_choice, describe_owner
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

    def prefill(self, inputs, length):
        token_ids = inputs["token_ids"]
        cache = self.backbone.init_cache(*ops.shape(token_ids))
        return self.backbone.decode_with_cache(token_ids, cache, 0, length=length)

    def score(
        self, token_ids, padding_mask=None, scoring_mode="logits", layer_intercept_fn=None, target_ids=None
    ):
        """Scores tokens, as `score` of the language models of KerasHub does.

        Args:
            token_ids: int tensor of shape `(batch, T)`.
            padding_mask: Tensor of shape `(batch, T)`. Defaults to one without padding.
            scoring_mode: `"logits"` or `"loss"`.
            layer_intercept_fn: A function of what a block returns and the number of the block, or of the
                embeddings and -1, that returns what the next block gets. Defaults to `None`.
            target_ids: int tensor of shape `(batch, T)`, the next tokens. Needed for `"loss"`.

        Returns:
            The logits of the next tokens, `(batch, T, vocabulary_size)`, or the crossentropy of each with
            that of `target_ids`, `(batch, T)`.

        Raises:
            ValueError: If `scoring_mode` is another one, or there is a loss without targets.
        """
        check_choice(self, "scoring_mode", scoring_mode, ("logits", "loss"))
        if scoring_mode == "loss" and target_ids is None:
            raise ValueError(
                f"`score` of {describe_owner(self)} needs `target_ids` for a loss. "
                "Received: target_ids=None"
            )
        padding_mask = ops.ones_like(token_ids) if padding_mask is None else padding_mask
        intercept = {} if layer_intercept_fn is None else {"intercept": layer_intercept_fn}
        logits = self.logits(self.backbone.decode(token_ids, padding_mask, **intercept))
        if scoring_mode == "logits":
            return logits
        logits = ops.cast(logits, "float32")
        return ops.sparse_categorical_crossentropy(target_ids, logits, from_logits=True)
