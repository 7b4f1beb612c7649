//! The decoder and the CPU core against a second reference: the models of candle-transformers, written by others in
//! other words. It reads the tiny checkpoints under a config of which it computes everything: what it leaves out is
//! taken out on both sides, and listed here. Its key-value caches get a token at a time, so that there are logits
//! for each.
//!
//! `ALLOT_GGUF` names a GGUF file of the llama architecture, SmolLM2-135M-Instruct.Q4_1.gguf for one: it is held
//! against candle-transformers' quantized Llama, which multiplies with the quantized numbers themselves; or, with
//! `CANDLE_DEQUANTIZE_ALL=1`, in float32 as we do.

#![allow(clippy::unwrap_used, clippy::print_stdout, missing_docs)]

mod skip;

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use allot_engine::core::{Core as _, PassOptions, Sequence};
use allot_engine::cpu::{Cpu, Setup};
use allot_engine::model::{Checkpoint, Decoder, Precision, Shape, token_log_probs};
use candle_core::quantized::gguf_file;
use candle_core::{D, DType, Device, IndexOp as _, Result, Tensor};
use candle_nn::VarBuilder;
use candle_transformers::models as theirs;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use skip::skip;

const CPU: Device = Device::Cpu;

fn folders() -> Vec<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/cases/models");
    let all = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let mut all: Vec<PathBuf> = all.filter(|path| path.join("reference.safetensors").is_file()).collect();
    all.sort();
    assert!(!all.is_empty());
    all
}

/// A model's config, but for what candle-transformers does not know of it.
fn known_there(mut config: Value) -> Value {
    let family = config["model_type"].as_str().unwrap().to_owned();
    let mut changes = Vec::new();
    // YaRN, and linear scaling.
    if ["granite", "smollm3", "gemma3_text"].contains(&family.as_str()) {
        changes.push(("rope_scaling", Value::Null));
    }
    // Granite's four multipliers.
    if family == "granite" {
        let head = config["hidden_size"].as_f64().unwrap() / config["num_attention_heads"].as_f64().unwrap();
        changes.push(("attention_multiplier", json!(head.powf(-0.5))));
        let others = ["embedding_multiplier", "residual_multiplier", "logits_scaling"];
        changes.extend(others.map(|key| (key, json!(1.0))));
    }
    // Scores that are scaled for another width than a head's.
    if ["gemma2", "gemma3_text"].contains(&family.as_str()) {
        changes.push(("query_pre_attn_scalar", config["head_dim"].clone()));
    }
    // Windows, which are in no mask there for a token alone; Gemma 3's are, by a cache that turns over. And one that is
    // not used, but has to be a number there.
    if ["mistral", "phi3", "gemma2", "qwen2"].contains(&family.as_str()) {
        changes.push(("sliding_window", config["max_position_embeddings"].clone()));
    }
    // It has no number for a window that is not used.
    if family == "qwen3_moe" {
        changes.push(("max_window_layers", config["num_hidden_layers"].clone()));
    }
    for (key, value) in changes {
        config[key] = value;
    }
    config
}

/// A model there, as far as tests need it: logits of the next token, `[V]`, after one more token at a position.
type Model = Box<dyn FnMut(&Tensor, usize) -> Result<Tensor>>;

/// The model of candle-transformers for this config.
fn model(config: &Value, weights: HashMap<String, Tensor>) -> Model {
    fn of<T: DeserializeOwned>(config: &Value) -> T {
        serde_json::from_value(config.clone()).unwrap()
    }
    let vb = VarBuilder::from_tensors(weights, DType::F32, &CPU);
    match config["model_type"].as_str().unwrap() {
        "llama" => {
            let config = of::<theirs::llama::LlamaConfig>(config).into_config(false);
            let model = theirs::llama::Llama::load(vb, &config).unwrap();
            let mut cache = theirs::llama::Cache::new(true, DType::F32, &config, &CPU).unwrap();
            Box::new(move |x, at| model.forward(x, at, &mut cache))
        }
        "granite" => {
            let config = of::<theirs::granite::GraniteConfig>(config).into_config(false);
            let model = theirs::granite::Granite::load(vb, &config).unwrap();
            let mut cache = theirs::granite::Cache::new(true, DType::F32, &config, &CPU).unwrap();
            Box::new(move |x, at| model.forward(x, at, &mut cache))
        }
        "qwen2" => {
            let mut model = theirs::qwen2::ModelForCausalLM::new(&of(config), vb).unwrap();
            Box::new(move |x, at| model.forward(x, at))
        }
        "qwen3" => {
            let mut model = theirs::qwen3::ModelForCausalLM::new(&of(config), vb).unwrap();
            Box::new(move |x, at| model.forward(x, at))
        }
        "qwen3_moe" => {
            let mut model = theirs::qwen3_moe::ModelForCausalLM::new(&of(config), vb).unwrap();
            Box::new(move |x, at| model.forward(x, at))
        }
        "mistral" => {
            let mut model = theirs::mistral::Model::new(&of(config), vb).unwrap();
            Box::new(move |x, at| model.forward(x, at))
        }
        "smollm3" => {
            let mut model = theirs::smol::smollm3::ModelForCausalLM::new(&of(config), vb).unwrap();
            Box::new(move |x, at| model.forward(x, at))
        }
        "olmo2" => {
            let mut model = theirs::olmo2::Model::new(&of(config), vb).unwrap();
            Box::new(move |x, at| model.forward(x, at))
        }
        "phi3" => {
            let mut model = theirs::phi3::Model::new(&of(config), vb).unwrap();
            Box::new(move |x, at| model.forward(x, at))
        }
        "gemma2" => {
            let mut model = theirs::gemma2::Model::new(false, &of(config), vb).unwrap();
            Box::new(move |x, at| model.forward(x, at))
        }
        "gemma3_text" => {
            let mut model = theirs::gemma3::Model::new(false, &of(config), vb).unwrap();
            Box::new(move |x, at| model.forward(x, at))
        }
        other => panic!("there is no model for `{other}` here yet: add it"),
    }
}

/// Logits `[1, T, V]` of tokens `[1, T]`, a token after the other.
fn logits(model: &mut Model, ids: &[u32]) -> Tensor {
    let one = |(at, id): (usize, &u32)| {
        let logits = model(&Tensor::new(&[[*id]], &CPU).unwrap(), at).unwrap();
        logits.to_dtype(DType::F32).unwrap().flatten_all().unwrap()
    };
    let rows: Vec<Tensor> = ids.iter().enumerate().map(one).collect();
    Tensor::stack(&rows, 0).unwrap().unsqueeze(0).unwrap()
}

fn numbers(tensor: &Tensor) -> Vec<f32> {
    tensor.flatten_all().unwrap().to_vec1().unwrap()
}

fn largest(tensor: &Tensor) -> f32 {
    numbers(tensor).into_iter().fold(0.0, |most, x| most.max(x.abs()))
}

#[test]
fn candle_transformers_computes_the_same() {
    for folder in folders() {
        let name = folder.file_name().unwrap().to_string_lossy().into_owned();
        let config = std::fs::read_to_string(folder.join("config_v4.json")).unwrap();
        let config = known_there(serde_json::from_str(&config).unwrap());
        let mut checkpoint = Checkpoint::load(&folder, &CPU).unwrap();
        checkpoint.shape = Shape::parse(&config.to_string()).unwrap();
        let weights = checkpoint.weights.iter().map(|(name, var)| (name.clone(), var.as_detached_tensor()));
        let mut weights: HashMap<String, Tensor> = weights.collect();
        // Some models there want a head of their own.
        if !weights.contains_key("lm_head.weight") {
            weights.insert("lm_head.weight".to_owned(), weights["model.embed_tokens.weight"].clone());
        }
        let mut model = model(&config, weights);

        let reference = candle_core::safetensors::load(folder.join("reference.safetensors"), &CPU).unwrap();
        let tokens = reference["input_ids"].to_dtype(DType::U32).unwrap();
        let ids: Vec<u32> = tokens.i(0).unwrap().to_vec1().unwrap();
        let theirs = logits(&mut model, &ids);
        let ours = Decoder::new(&checkpoint).forward(&tokens).unwrap().logits;
        let off = largest(&(&ours - &theirs).unwrap()) / largest(&theirs);

        let setup = Setup {
            precision: Precision::F32,
            threads: 1,
            longest: ids.len(),
            lora: None,
            reference: false,
            seed: 1,
        };
        let mut core = Cpu::new(&checkpoint, setup).unwrap();
        let plain = PassOptions { temperature: 1.0, recompute: false };
        let scored = core
            .score(&[Sequence { tokens: &ids, prompt: 1, observed: &[], mask: None }], plain, false)
            .unwrap();
        let log_probs = numbers(&token_log_probs(&theirs, &tokens).unwrap());
        let pairs = scored[0].iter().zip(&log_probs);
        let worst = pairs.map(|(ours, theirs)| (ours.log_prob - theirs).abs()).fold(0.0, f32::max);
        println!("{name:<28} logits {off:.1e}, log-probs of the core {worst:.1e}");
        assert!(off < 2e-5, "{name}: logits differ by {off:e} of the largest");
        assert!(worst < 5e-5, "{name}: log-probs differ by {worst:e}");
    }
}

/// Theirs rounds what is multiplied to eight bits, too, as llama.cpp does; ours are the numbers that the file stands
/// for, in float32. So the two are near each other, and hardly ever of another opinion.
#[test]
fn a_quantized_file_says_what_its_quantized_products_say() {
    let Some(path) = std::env::var_os("ALLOT_GGUF").map(PathBuf::from) else {
        skip("gguf", "`ALLOT_GGUF` names no SmolLM2-135M-Instruct.Q4_1.gguf, so no real file was read");
        return;
    };
    let told =
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/cases/gguf/SmolLM2-135M-Instruct.Q4_1.json");
    let told: Value = serde_json::from_str(&std::fs::read_to_string(told).unwrap()).unwrap();
    let mut ids: Vec<u32> = serde_json::from_value(told["ids"].clone()).unwrap();
    ids.truncate(20);

    let mut file = std::fs::File::open(&path).unwrap();
    let content = gguf_file::Content::read(&mut file).unwrap();
    let mut theirs = theirs::quantized_llama::ModelWeights::from_gguf(content, &mut file, &CPU).unwrap();
    let mut model: Model = Box::new(move |x, at| theirs.forward(x, at));
    let theirs = logits(&mut model, &ids);

    let checkpoint = Checkpoint::load(&path, &CPU).unwrap();
    let tokens = Tensor::new(vec![ids.as_slice()], &CPU).unwrap();
    let ours = Decoder::new(&checkpoint).forward(&tokens).unwrap().logits;
    let off = numbers(&(&ours - &theirs).unwrap()).iter().map(|d| f64::from(*d).powi(2)).sum::<f64>();
    let size = numbers(&theirs).iter().map(|l| f64::from(*l).powi(2)).sum::<f64>();
    let off = (off / size).sqrt();
    let best =
        |logits: &Tensor| -> Vec<u32> { logits.i(0).unwrap().argmax(D::Minus1).unwrap().to_vec1().unwrap() };
    let same = best(&ours).iter().zip(best(&theirs)).filter(|(a, b)| **a == *b).count();
    println!(
        "{} tokens: logits differ by {off:.1e} of their size; {same} likeliest tokens are the same",
        ids.len()
    );
    assert!(off < 0.1, "logits differ by {off:e} of their size");
    assert!(same + 1 >= ids.len(), "{same} of {} likeliest tokens are the same", ids.len());
}
