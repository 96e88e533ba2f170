"""Trains a translation model, scores it, exports it, and asks the export in a new process.

Without arguments it learns to read dates: as people write them in more than thirty languages, from
Unicode CLDR, to be translated to ISO 8601. With `--data` it learns from your own parallel text files,
`<split>.<language>` or `<split>.<language>.gz`, or from a data set of TensorFlow Datasets:

    python examples/translation.py
    python examples/translation.py --data my_texts --source en --target de --max-minutes 20
    python examples/translation.py --data tfds:wmt14_translate/de-en --source en --target de

    python examples/translation.py --data my_texts --source en --target de --strategy mirrored

It trains the preset tiny for 2 epochs in batches of 128 dates, or small for 20 epochs in batches of 4096
tokens. With `--strategy` it trains on several GPUs, several machines or a TPU, see `docs/training.md`.

When it is interrupted or killed, the same command goes on from the last checkpoint, also in the middle of
an epoch, and ends with the same weights.
"""

import jobs
import keras
import sacrebleu

from keras_synth.data import load_pairs, token_batches, train_tokenizer
from keras_synth.models import (
    BeamSampler,
    SynthesizerEncoderDecoderBackbone,
    SynthesizerSeq2SeqLM,
    SynthesizerSeq2SeqLMPreprocessor,
)
from keras_synth.training import GenerationScore, SmoothedCrossentropy

#: The sizes, and what goes well with each.
PRESETS = {
    "tiny": dict(vocabulary_size=4000, learning_rate=2e-3, dropout=0.1),
    "small": dict(vocabulary_size=8000, learning_rate=1e-3, dropout=0.2),
    "transformer_base": dict(vocabulary_size=32000, learning_rate=7e-4, dropout=0.1),
}
DATES = dict(preset="tiny", epochs=2, batch_size=128, vocabulary_size=1000, max_length=64, target_length=16)
TEXTS = dict(preset="small", epochs=20, batch_tokens=4096, max_length=128, target_length=128)


def parse_arguments():
    parser = jobs.argument_parser(__doc__, PRESETS)
    parser.add_argument("--data", default="dates", help="dates, tfds:NAME/CONFIG, or a folder")
    parser.add_argument("--source", default="en", help="the language to translate from")
    parser.add_argument("--target", default="de", help="the language to translate to")
    parser.add_argument("--label-smoothing", type=float, default=0.0)
    parser.add_argument("--bleu-every", type=jobs.positive(int), help="score held-out pairs every N epochs")
    arguments = parser.parse_args()
    if arguments.data == "dates":
        return jobs.complete(arguments, "date_normalizer", **DATES)
    return jobs.complete(arguments, f"translation_{arguments.source}_{arguments.target}", **TEXTS)


def make_model(arguments, pairs):
    preset = PRESETS[arguments.preset]
    tokenizer = train_tokenizer(
        (text for pair in pairs.train.as_numpy_iterator() for text in pair.values()),
        arguments.vocabulary_size or preset["vocabulary_size"],
        split_digits=True,
    )
    backbone = SynthesizerEncoderDecoderBackbone.from_size(
        arguments.preset,
        vocabulary_size=tokenizer.vocabulary_size(),
        max_length=arguments.max_length,
        attention=arguments.attention,
        dropout=preset["dropout"],
        normalize_first=True,  # otherwise the warm-up would have to be longer
        seed=arguments.seed,
    )
    preprocessor = SynthesizerSeq2SeqLMPreprocessor(
        tokenizer, arguments.max_length, arguments.target_length
    )
    return SynthesizerSeq2SeqLM(backbone, preprocessor)


def train(job, model, pairs):
    arguments = job.arguments

    def batches(pairs, **kwargs):
        return token_batches(pairs, model.preprocessor, **job.batches, **kwargs)

    def compile(steps):
        learning_rate = job.learning_rate(PRESETS[arguments.preset]["learning_rate"], steps)
        model.compile(
            keras.optimizers.Adam(learning_rate, beta_2=0.98, global_clipnorm=1.0),
            loss=SmoothedCrossentropy(arguments.label_smoothing) if arguments.label_smoothing else "auto",
            sampler="greedy" if arguments.data == "dates" else BeamSampler(4),
            jit_compile=False,  # batches have too many shapes for XLA
        )

    callbacks = []
    if arguments.bleu_every:
        callbacks.append(GenerationScore(pairs.validation.take(500), every_epochs=arguments.bleu_every))
    job.fit(
        model,
        batches(pairs.train, shuffle=True, seed=arguments.seed, epochs=job.epochs),
        batches(pairs.validation),
        compile,
        callbacks,
    )


def score(model, arguments, pairs):
    sources, references = (
        [pair[side].decode() for pair in pairs.test.as_numpy_iterator()]
        for side in ("encoder_text", "decoder_text")
    )
    answers = jobs.answers_to(sources, model.generate)
    if arguments.data == "dates":
        right = sum(answer == reference for answer, reference in zip(answers, references, strict=True))
        print(f"Exact match: {right / len(answers):.1%} of {len(answers)} held-out dates.")
    else:
        print(f"{sacrebleu.corpus_bleu(answers, [references])} on {len(answers)} test sentences.")
    return sources, references, answers


def main():
    arguments = parse_arguments()
    job = jobs.Job(arguments, causal=True)
    with jobs.step("Loading the data"):
        pairs = load_pairs(arguments.data, arguments.source, arguments.target)
        print(
            f"{len(pairs.train)} training, {len(pairs.validation)} validation, {len(pairs.test)} test pairs"
        )
    model = job.make_model(lambda: make_model(arguments, pairs))
    with jobs.step("Training"):
        if job.epochs:
            train(job, model, pairs)
    job.finish(model, lambda: score(model, arguments, pairs))


if __name__ == "__main__":
    main()
