"""Attention in plain NumPy and float64, written from the formulas of the paper (arXiv 2005.00743)."""

import numpy as np


def array(weight):
    return np.asarray(weight, dtype="float64")


def dense(equation, x, layer):
    """`x W + b` for an einsum `equation`."""
    return np.einsum(equation, x, array(layer.kernel)) + (0 if layer.bias is None else array(layer.bias))


def weights_of(layer):
    """The weights of a layer by their paths within it."""
    return {weight.path.split(f"{layer.name}/", 1)[-1]: array(weight) for weight in layer.weights}


def relu(x):
    return np.maximum(x, 0)


def random(alignment, query, key):
    return array(alignment.table)


def factorized_random(alignment, query, key):
    return np.einsum("htk,hsk->hts", array(alignment.query_factor), array(alignment.key_factor))


def hidden_rows(alignment, query):
    """`relu(W1 x + b1)` of each head, `(H, batch, T, key_dim)`."""
    return np.moveaxis(relu(dense("btd,dhk->bthk", query, alignment.hidden_dense)), 2, 0)


def head_rows(hidden, kernel, bias):
    """`W h + b` of each head, `(batch, H, T, columns)`."""
    biases = np.zeros(len(hidden)) if bias is None else array(bias)
    return np.stack([h @ w + b for h, w, b in zip(hidden, array(kernel), biases, strict=True)], axis=1)


def dense_synthesizer(alignment, query, key):
    return head_rows(hidden_rows(alignment, query), alignment.logits_kernel, alignment.logits_bias)


def factorized_dense(alignment, query, key):
    a, b = alignment.factors
    hidden = hidden_rows(alignment, query)
    tiled = head_rows(hidden, alignment.tiled_kernel, alignment.tiled_bias)
    repeated = head_rows(hidden, alignment.repeated_kernel, alignment.repeated_bias)
    return np.tile(tiled, b) * np.repeat(repeated, a, axis=-1)


def dot_product(alignment, query, key):
    q = dense("btd,dhk->bthk", query, alignment.query_dense)
    k = dense("bsd,dhk->bshk", key, alignment.key_dense)
    return np.einsum("bthk,bshk->bhts", q, k) / np.sqrt(alignment.key_dim)


def mixture(alignment, query, key):
    exponentials = np.exp(array(alignment.mixture_logits))
    alphas = exponentials / exponentials.sum(axis=0)
    parts = [logits(part, query, key) for part in alignment.alignments]
    return sum(alpha * part for alpha, part in zip(alphas, parts, strict=True))


FORMULAS = {
    "RandomAlignment": random,
    "FactorizedRandomAlignment": factorized_random,
    "DenseAlignment": dense_synthesizer,
    "FactorizedDenseAlignment": factorized_dense,
    "DotProductAlignment": dot_product,
    "MixtureAlignment": mixture,
}


def logits(alignment, query, key=None):
    """The alignment `B`, cut to the lengths of `query` and `key`, as `(batch, H, T, S)`."""
    key = query if key is None else key
    (batch, rows, _), columns = query.shape, key.shape[1]
    result = FORMULAS[type(alignment).__name__](alignment, query, key)[..., :rows, :columns]
    return np.broadcast_to(result, (batch, alignment.num_heads, rows, columns))


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


def softmax(logits, mask=None):
    """Softmax over the columns that `mask` shows, all by default; zeros where it shows none."""
    mask = np.ones(logits.shape, dtype=bool) if mask is None else mask
    result = np.zeros(logits.shape)
    for index in np.ndindex(logits.shape[:-1]):
        shown = mask[index]
        if shown.any():
            exponentials = np.exp(logits[index][shown] - logits[index][shown].max())
            result[index][shown] = exponentials / exponentials.sum()
    return result


def whole_mask(
    shape, query_mask=None, value_mask=None, key_mask=None, attention_mask=None, use_causal_mask=False
):
    """All masks as one, of `shape` `(batch, H, T, S)`."""
    mask = np.ones(shape, dtype=bool)
    if query_mask is not None:
        mask &= (np.asarray(query_mask) != 0)[:, None, :, None]
    for columns in (value_mask, key_mask):
        if columns is not None:
            mask &= (np.asarray(columns) != 0)[:, None, None, :]
    if attention_mask is not None:
        attention_mask = np.asarray(attention_mask) != 0
        mask &= attention_mask[:, None] if attention_mask.ndim == 3 else attention_mask
    if use_causal_mask:
        mask &= np.arange(shape[3])[None, :] <= np.arange(shape[2])[:, None]
    return mask


def attention(layer, query, value=None, key=None, **masks):
    """`softmax(B) G(X)` and the output projection of an attention layer: output and scores."""
    value = query if value is None else value
    key = value if key is None else key
    alignment = logits(layer.alignment, query, key)
    scores = softmax(alignment, whole_mask(alignment.shape, **masks))
    mixed = np.einsum("bhts,bshv->bthv", scores, dense("bsd,dhv->bshv", value, layer.value_dense))
    return dense("bthv,hvd->btd", mixed, layer.output_dense), scores
