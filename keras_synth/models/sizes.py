"""The sizes of models that are known from the literature, and smaller ones.

Each is the arguments of a backbone, without `attention`. They fit any of the backbones, though most
were published for one of them.
"""

_TRANSFORMER_BASE = dict(
    num_layers=6,
    num_heads=8,
    hidden_dim=512,
    intermediate_dim=2048,
    vocabulary_size=32000,
    max_length=256,
    dropout=0.1,
)
_T5 = dict(
    vocabulary_size=32128,
    max_length=512,
    dropout=0.1,
    attention_dropout=0.1,
    feedforward_dropout=0.1,
    normalization="rms_norm",
    layer_norm_epsilon=1e-6,
    normalize_first=True,
    use_bias=False,
    positions="relative_bias",
)

#: name: arguments of `SynthesizerEncoderBackbone`, `SynthesizerDecoderBackbone` or
#: `SynthesizerEncoderDecoderBackbone`.
SIZES = {
    # For a laptop. The vocabulary is the tokenizer's.
    "tiny": dict(num_layers=2, num_heads=4, hidden_dim=128, intermediate_dim=512, max_length=128),
    "small": dict(num_layers=3, num_heads=4, hidden_dim=256, intermediate_dim=1024, max_length=256),
    # WMT'14 translation, encoder-decoder: the base model of https://arxiv.org/abs/1706.03762, Table 3.
    "transformer_base": dict(**_TRANSFORMER_BASE, normalize_first=False),
    # LM1B language modeling, decoder: `lmx_base` of Tensor2Tensor, 50 million parameters. It is the
    # Transformer base in a pre-norm form, with more dropout and separate embeddings.
    "lm1b_base": dict(
        **_TRANSFORMER_BASE,
        attention_dropout=0.1,
        feedforward_dropout=0.1,
        normalize_first=True,
        tie_word_embeddings=False,
    ),
    # Text to text, encoder-decoder: https://arxiv.org/abs/1910.10683, Sections 3.1.1 and 3.7, but without
    # its dropout after the last block.
    "t5_small": dict(**_T5, num_layers=6, num_heads=8, hidden_dim=512, intermediate_dim=2048),
    "t5_base": dict(**_T5, num_layers=12, num_heads=12, hidden_dim=768, intermediate_dim=3072),
    # T5 1.1, see https://arxiv.org/abs/2002.05202: gates, separate embeddings, pre-training without
    # dropout. Its small model is missing, because its heads are not as wide together as the model.
    "t5_1_1_base": {
        **_T5,
        **dict(num_layers=12, num_heads=12, hidden_dim=768, intermediate_dim=2048),
        **dict(activation="gelu", use_gated_activation=True, tie_word_embeddings=False),
        **dict(dropout=0.0, attention_dropout=0.0, feedforward_dropout=0.0),
    },
    # Classification of long byte sequences, encoder: https://arxiv.org/abs/2011.04006, the text task.
    # 256 bytes and the special tokens.
    "lra_text": dict(
        num_layers=4,
        num_heads=4,
        hidden_dim=256,
        intermediate_dim=1024,
        vocabulary_size=260,
        max_length=4000,
        dropout=0.1,
        attention_dropout=0.1,
        feedforward_dropout=0.1,
        activation="gelu",
        normalize_first=True,
    ),
}


def get_size(size):
    """A copy of the arguments that `SIZES` has for `size`."""
    if size not in SIZES:
        raise ValueError(f"`size` must be one of {', '.join(map(repr, SIZES))}. Received: size={size!r}")
    return dict(SIZES[size])
