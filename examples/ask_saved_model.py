"""Asks an exported model: text in, text out. Needs only TensorFlow and tensorflow-text.

    python examples/ask_saved_model.py saved_models/date_normalizer/1 "4 mars 2021"

Without texts it reads them from standard input, one a line. Prints one answer a line: a text, or the label
that a classifier gives.
"""

import sys

import tensorflow as tf
import tensorflow_text  # noqa: F401  Registers the operations of the tokenizer.


def main(folder, *texts):
    model = tf.saved_model.load(folder).signatures["serving_default"]
    texts = list(texts) or [line.rstrip("\n") for line in sys.stdin]
    outputs = model(text=tf.constant(texts))
    answers = outputs["text" if "text" in outputs else "label"].numpy()
    sys.stdout.buffer.writelines(answer + b"\n" for answer in answers)
    # What a server does not have, this program does without.
    loaded = {"keras_synth", "keras_hub"} & sys.modules.keys()
    if loaded:
        sys.exit(f"The answers came with the help of {', '.join(sorted(loaded))}.")


if __name__ == "__main__":
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    main(*sys.argv[1:])
