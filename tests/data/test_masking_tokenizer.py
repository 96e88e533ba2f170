import keras
import numpy as np
import pytest

from keras_synth.data.masking_tokenizer import MaskingTokenizer

TEXT = "one <mask> two <extra_id_0> three"


@pytest.fixture(scope="module")
def masking(tokenizer):
    return MaskingTokenizer(tokenizer.proto, num_sentinels=3)


def test_new_tokens_stand_at_the_end_and_no_text_yields_them(tokenizer, masking):
    size = tokenizer.vocabulary_size()
    assert masking.vocabulary_size() == size + 4
    assert [masking.mask_token_id, *masking.sentinel_ids] == [size, size + 1, size + 2, size + 3]
    np.testing.assert_array_equal(masking(TEXT), tokenizer(TEXT))
    assert masking.detokenize([*np.array(masking(TEXT)).tolist(), *range(size, size + 4)]) == TEXT
    assert set(masking.special_token_ids) == {0, 2, 3, size}


def test_its_own_proto_stays_as_it_is(masking):
    assert MaskingTokenizer(masking.proto, num_sentinels=3).proto == masking.proto
    assert MaskingTokenizer(masking.proto, num_sentinels=5).vocabulary_size() == (
        masking.vocabulary_size() + 2
    )


def test_saving(masking, tmp_path):
    model = keras.Sequential([keras.Input((2,))])
    model.tokenizer = masking
    again = MaskingTokenizer.from_config(masking.get_config())
    masking.save_assets(str(tmp_path))
    again.load_assets(str(tmp_path))
    assert again.proto == masking.proto and again.mask_token_id == masking.mask_token_id
    masking.save_to_preset(str(tmp_path))
