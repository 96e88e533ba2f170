"""Scores of what a model generates, while it is trained."""

from collections.abc import Callable, Sequence

import keras
import keras_hub
import tensorflow as tf


class GenerationScore(keras.callbacks.Callback):
    """Lets the model generate at the end of epochs, and scores the texts against references.

    The score goes to the logs as `val_<score>`, where `keras.callbacks.EarlyStopping` and `ModelCheckpoint`
    find it; put them after this one in the list of callbacks. Higher is better, so give them `mode="max"`.

    Args:
        pairs: A `tf.data.Dataset` of dicts with the keys `"encoder_text"` and `"decoder_text"`, one pair
            each, as `keras_synth.data.load_pairs` makes them, or one such dict of two lists; or two lists,
            prompts and references.
        scores: One or a list of:

            - `"bleu"`: BLEU of the corpus, by sacrebleu.
            - `"rouge1"`, `"rouge2"`, `"rougeL"`: the mean F-measure of ROUGE, by rouge-score through
              KerasHub, times 100.
            - A function from the lists of answers and references to a number; its name is used.

            Defaults to `"bleu"`.
        every_epochs: int. It generates at the end of every so many epochs. Defaults to `1`.
        batch_size: int. The number of texts generated at once. Defaults to `32`.
        **kwargs: Keyword arguments of the model's `generate`.

    Raises:
        ValueError: If a score has an unknown name, or there are no pairs, or prompts without references.

    Example:

    >>> def exact_match(answers, references):
    ...     return sum(map(str.__eq__, answers, references)) / len(answers)
    >>> pairs = {"encoder_text": ["4 mars 2021"], "decoder_text": ["2021-03-04"]}
    >>> callbacks = [
    ...     GenerationScore(pairs, ["bleu", exact_match]),
    ...     keras.callbacks.EarlyStopping("val_exact_match", mode="max", patience=3),
    ... ]
    """

    def __init__(
        self,
        pairs: tf.data.Dataset | dict | tuple,
        scores: str | Callable | Sequence[str | Callable] = "bleu",
        every_epochs: int = 1,
        batch_size: int = 32,
        **kwargs,
    ):
        super().__init__()
        self.prompts, self.references = _texts(pairs)
        self.scores = dict(map(_score, scores if isinstance(scores, (list, tuple)) else [scores]))
        self.every_epochs = every_epochs
        self.batch_size = batch_size
        self.kwargs = kwargs

    def on_epoch_end(self, epoch, logs=None):
        if (epoch + 1) % self.every_epochs:
            return
        answers = self.generate()
        for name, score in self.scores.items():
            logs[f"val_{name}"] = float(score(answers, self.references))

    def generate(self) -> list[str]:
        """What the model answers to the prompts; the best of several beams."""
        kwargs = dict(self.kwargs)
        if not isinstance(self.model, keras_hub.models.Seq2SeqLM):
            kwargs.setdefault("strip_prompt", True)
        answers = []
        for start in range(0, len(self.prompts), self.batch_size):
            texts = self.model.generate(self.prompts[start : start + self.batch_size], **kwargs)
            if isinstance(texts, tuple):  # all beams, and their scores
                texts = [best for best, *_ in texts[0]]
            answers += texts
        return answers


def _texts(pairs):
    """Prompts and references as lists of strings."""
    if isinstance(pairs, tf.data.Dataset):
        pairs = list(pairs.as_numpy_iterator())
        pairs = {name: [pair[name] for pair in pairs] for name in ("encoder_text", "decoder_text")}
    if isinstance(pairs, dict):
        pairs = pairs["encoder_text"], pairs["decoder_text"]
    prompts, references = (
        [text.decode() if isinstance(text, bytes) else str(text) for text in side] for side in pairs
    )
    if not prompts or len(prompts) != len(references):
        raise ValueError(
            "`pairs` must have a prompt for each reference, and one at least. "
            f"Received: {len(prompts)} prompts, {len(references)} references"
        )
    return prompts, references


def _bleu(answers, references):
    import sacrebleu  # as rouge-score, in the extra `examples`

    return sacrebleu.corpus_bleu(answers, [references]).score


def _rouge(metric, **kwargs):
    def score(answers, references):
        rouge = metric(**kwargs)
        rouge.update_state(references, answers)
        return 100 * rouge.result()["f1_score"]

    return score


_SCORES = {
    "bleu": _bleu,
    "rouge1": _rouge(keras_hub.metrics.RougeN, order=1),
    "rouge2": _rouge(keras_hub.metrics.RougeN, order=2),
    "rougeL": _rouge(keras_hub.metrics.RougeL),
}


def _score(score):
    """The name of a score, and the function."""
    if callable(score):
        return score.__name__, score
    if score not in _SCORES:
        raise ValueError(
            f"A score must be one of {', '.join(map(repr, _SCORES))}, or a function. Received: {score!r}"
        )
    return score, _SCORES[score]
