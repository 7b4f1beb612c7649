#!/usr/bin/env python3
"""Makes the GGUF files of the tiny checkpoints, by llama.cpp's own converter, and pieces.json.

Run: python make.py LLAMA_CPP, in this folder, where LLAMA_CPP has llama.cpp's `convert_hf_to_gguf.py`, `conversion` and
`gguf-py` (made with those in the source of llama-cpp-python 0.3.36, torch 2.15.0, transformers 5.10.4,
sentencepiece 0.2.3). A second run gives the same files.

For each model there is its config as GGUF can tell it (NAME.json), and the file (NAME.gguf, float32). What GGUF does not
tell is set to what llama.cpp takes for it: which layers have a window or a rotary embedding, and what Gemma's scores are
scaled for. Weights are those of ../models/NAME. Gemma's, Phi-3's and Mistral's have a tokenizer of SentencePiece, which is
trained here, Gemma's without a space before each text; pieces.json has what SentencePiece itself makes of texts. The others have that of their folder, whose way of
splitting text is told to the converter, for it knows published tokenizers alone.
"""
import json, os, shutil, sys, tempfile
from pathlib import Path
import torch
import sentencepiece

HERE = Path(__file__).resolve().parent
MODELS = HERE.parent / 'models'
# The model, what its config says otherwise, and how its tokenizer splits text: None is SentencePiece.
SPECS = {
    'tiny-mistral': (dict(sliding_window=None), None),
    'tiny-smollm3-yarn': (dict(no_rope_layers=[1, 1], no_rope_layer_interval=4), 'qwen2'),
    'tiny-granite-linear': (dict(), 'qwen2'),
    'tiny-olmo2-dynamic': (dict(rope_parameters=dict(rope_type='default', rope_theta=5e5)), 'qwen2'),
    'tiny-phi3': (dict(original_max_position_embeddings=256), None),
    'tiny-gemma2': (dict(query_pre_attn_scalar=16), None),
    'tiny-gemma3': (dict(query_pre_attn_scalar=16, layer_types=['sliding_attention'] * 2), None),
    'tiny-qwen3-moe': (dict(), 'qwen2'),
}
TEXTS = [
    'What is 12 + 30? Reply with only the number.', '  two spaces,  and three   ', 'It\'s I\'M we\'ll don\'t', 'zebra',
    'Größe naïve café, 数学 ½ é e\u0301', 'def f(x):\n    return x**2\t# $4.50', 'emoji 👩‍🚀🎉\u00a0nbsp', '', ' ', '\n', '▁▁a',
]
# With a token in it, behind which llama.cpp puts a space, too, where it puts one before a text; SentencePiece does not.
TURN = '<start_of_turn>user\nHi<end_of_turn> ok'


def sentence_pieces(folder, prefix):
    """A model of 390 pieces, the bytes among them."""
    corpus = (HERE.parent / 'tokens' / 'make.py').read_text() + (MODELS / 'families.py').read_text()
    lines = [line for line in corpus.splitlines() if line.strip()]
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(lines), model_prefix=str(folder / 'tokenizer'), vocab_size=390, model_type='bpe',
        byte_fallback=True, normalization_rule_name='identity', remove_extra_whitespaces=False, num_threads=1,
        user_defined_symbols=['<start_of_turn>', '<end_of_turn>'], split_digits=True, unk_id=0, bos_id=1, eos_id=2,
        allow_whitespace_only_pieces=True, add_dummy_prefix=prefix, minloglevel=2)
    return sentencepiece.SentencePieceProcessor(model_file=str(folder / 'tokenizer.model'))


def convert(llama_cpp, name, changes, pre, told):
    from conversion import ModelBase, ModelType, get_model_class
    from conversion.base import TextModel
    import gguf
    with tempfile.TemporaryDirectory() as made:
        made = Path(made)
        for file in (MODELS / name).iterdir():
            if not file.name.startswith(('reference', 'config_v4')):
                shutil.copy(file, made / file.name)
        config = json.loads((made / 'config.json').read_text())
        config.update(changes)
        text = json.dumps(config, indent=1, sort_keys=True)
        (made / 'config.json').write_text(text)
        if pre is None:
            for file in ('tokenizer.json', 'tokenizer_config.json', 'chat_template.jinja'):
                (made / file).unlink()
            prefix = 'gemma' not in name
            pieces = sentence_pieces(made, prefix)
            turns = {str(i): dict(content=pieces.id_to_piece(i), special=True) for i in (3, 4)}
            (made / 'tokenizer_config.json').write_text(json.dumps(dict(
                tokenizer_class='LlamaTokenizer', add_bos_token=True, add_eos_token=False, bos_token='<s>', eos_token='</s>',
                unk_token='<unk>', added_tokens_decoder=turns)))
            texts = TEXTS if prefix else [*TEXTS, TURN]
            told['prefix' if prefix else 'plain'] = [dict(text=t, ids=pieces.encode(t)) for t in texts]
        else:
            # GGUF keeps this text as it is.
            TextModel.get_vocab_base_pre = lambda self, tokenizer: pre
        to = HERE / f'{name}.gguf'
        hparams = ModelBase.load_hparams(made, False)
        kind = get_model_class(hparams['architectures'][0])
        with torch.inference_mode():
            model = kind(made, gguf.LlamaFileType.ALL_F32, to, model_name=name)
            model.write()
        (HERE / f'{name}.json').write_text(text + '\n')
        print(name, to.stat().st_size // 1024, 'KiB')


if __name__ == '__main__':
    llama_cpp = Path(sys.argv[1]).resolve()
    sys.path[:0] = [str(llama_cpp / 'gguf-py'), str(llama_cpp)]
    told = {}
    for name, (changes, pre) in SPECS.items():
        if (MODELS / name).is_dir() and (not sys.argv[2:] or name in sys.argv[2:]): convert(llama_cpp, name, changes, pre, told)
    if len(told) == 2:
        json.dump(told, open(HERE / 'pieces.json', 'w'), ensure_ascii=False)
