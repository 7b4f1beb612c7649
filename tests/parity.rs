//! The decoder against transformers, over tiny checkpoints with recorded values: `ALLOT_TINY_MODELS`
//! names another folder of them. Logits, hidden states, greedy tokens, token
//! log-probs, the clipped loss and every gradient.

#![allow(clippy::unwrap_used, clippy::print_stdout, missing_docs)]

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use allot_engine::loss::{LossInputs, LossNormalization, part};
use allot_engine::model::{Checkpoint, Decoder, Shape, token_log_probs};
use allot_engine::{LossConfig, LossKind};
use candle_core::{DType, Device, IndexOp as _, Tensor};

type Reference = HashMap<String, Tensor>;

fn folders() -> Vec<PathBuf> {
    let default = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/cases/models");
    let folder = std::env::var_os("ALLOT_TINY_MODELS").map_or(default, PathBuf::from);
    let mut all: Vec<PathBuf> = std::fs::read_dir(&folder)
        .unwrap_or_else(|e| panic!("{}: {e}", folder.display()))
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.join("reference.safetensors").is_file())
        .collect();
    all.sort();
    assert!(!all.is_empty(), "{} holds no model with a reference", folder.display());
    all
}

/// The largest difference, over the size of what it is compared with.
fn difference(ours: &Tensor, theirs: &Tensor) -> f32 {
    assert_eq!(ours.dims(), theirs.dims());
    let scalar = |t: Tensor| t.flatten_all().unwrap().max(0).unwrap().to_scalar::<f32>().unwrap();
    let largest = scalar(theirs.abs().unwrap());
    scalar((ours - theirs).unwrap().abs().unwrap()) / largest.max(1e-3)
}

fn tokens(reference: &Reference, name: &str) -> Tensor {
    reference[name].to_dtype(DType::U32).unwrap()
}

fn rows(tokens: &Tensor) -> Vec<Vec<u32>> {
    tokens.to_vec2().unwrap()
}

#[test]
fn both_kinds_of_config_tell_the_same_shape() {
    for folder in folders() {
        let new = Shape::read(&folder.join("config.json")).unwrap();
        assert_eq!(new, Shape::read(&folder.join("config_v4.json")).unwrap(), "{}", folder.display());
        let checkpoint = Checkpoint::load(&folder, &Device::Cpu).unwrap();
        let numbers: usize = checkpoint.weights.values().map(|v| v.elem_count()).sum();
        assert_eq!(numbers, new.parameters());
    }
}

#[test]
fn the_decoder_computes_what_transformers_does() {
    for folder in folders() {
        let name = folder.file_name().unwrap().to_string_lossy().into_owned();
        let checkpoint = Checkpoint::load(&folder, &Device::Cpu).unwrap();
        let reference =
            candle_core::safetensors::load(folder.join("reference.safetensors"), &Device::Cpu).unwrap();
        let decoder = Decoder::new(&checkpoint);
        let close = |ours: &Tensor, theirs: &Tensor, what: &str, bound: f32| {
            let d = difference(ours, theirs);
            println!("{name:<28} {what:<24} {d:.1e}");
            assert!(d < bound, "{name}: {what} differs by {d:e} of its largest value");
        };

        let ids = tokens(&reference, "input_ids");
        let output = decoder.forward(&ids).unwrap();
        close(&output.logits, &reference["logits"], "logits", 2e-5);
        for (i, hidden) in output.hidden.iter().enumerate() {
            close(hidden, &reference[&format!("hidden_{i}")], &format!("hidden_{i}"), 2e-5);
        }

        // The reference was told to give twelve tokens, none of them the end.
        let config: serde_json::Value =
            serde_json::from_str(&std::fs::read_to_string(folder.join("config.json")).unwrap()).unwrap();
        let end = config["eos_token_id"].as_u64().unwrap() as usize;
        let mut row = rows(&ids).swap_remove(0);
        let greedy = rows(&tokens(&reference, "greedy_output_ids")).swap_remove(0);
        while row.len() < greedy.len() {
            let ids = Tensor::new(vec![row.as_slice()], &Device::Cpu).unwrap();
            let logits = decoder.forward(&ids).unwrap().logits;
            let mut last: Vec<f32> = logits.i((0, row.len() - 1)).unwrap().to_vec1().unwrap();
            last[end] = f32::NEG_INFINITY;
            let best = (0..last.len()).max_by(|a, b| last[*a].total_cmp(&last[*b])).unwrap();
            row.push(best as u32);
        }
        assert_eq!(row, greedy, "{name}: greedy tokens");
    }
}

#[test]
fn the_decoder_learns_what_transformers_does() {
    for folder in folders() {
        let name = folder.file_name().unwrap().to_string_lossy().into_owned();
        let checkpoint = Checkpoint::load(&folder, &Device::Cpu).unwrap();
        let reference =
            candle_core::safetensors::load(folder.join("reference.safetensors"), &Device::Cpu).unwrap();
        let told: serde_json::Value =
            serde_json::from_str(&std::fs::read_to_string(folder.join("reference.json")).unwrap()).unwrap();
        let number = |path: &str| told.pointer(path).and_then(serde_json::Value::as_f64).unwrap();

        let ids = tokens(&reference, "input_ids");
        let logits = Decoder::new(&checkpoint).forward(&ids).unwrap().logits;
        let log_probs = token_log_probs(&logits, &ids).unwrap();
        let d = difference(&log_probs, &reference["token_logp"]);
        assert!(d < 2e-5, "{name}: log-probs differ by {d:e}");

        let all = |name: &str| -> Vec<f32> { reference[name].flatten_all().unwrap().to_vec1().unwrap() };
        let (old, advantages, mask) = (all("old_logp"), all("advantages"), all("response_mask"));
        let new: Vec<f32> = log_probs.flatten_all().unwrap().to_vec1().unwrap();
        let config = LossConfig {
            clip_low: Some(number("/clip/low")),
            clip_high: Some(number("/clip/high")),
            dual_clip: Some(0.0),
            ..LossConfig::of(LossKind::Dapo)
        };
        let tokens = mask.iter().filter(|m| **m > 0.0).count();
        let over = LossNormalization { answers: 1, tokens, longest: tokens, correction: 1.0 };
        // Here each token has an advantage of its own.
        let (mut value, mut slopes) = (0.0, vec![0.0; new.len()]);
        for i in (0..new.len()).filter(|i| mask[*i] > 0.0) {
            let (new, old) = (&new[i..=i], &old[i..=i]);
            let told = LossInputs { advantage: advantages[i].into(), new, old, sampled: old, reference: &[] };
            let one = part(&config, told, over);
            value += one.value;
            slopes[i] = one.gradient[0];
        }
        assert!(
            (value - number("/loss")).abs() < 1e-5,
            "{name}: the loss is {value}, not {}",
            number("/loss")
        );
        let slopes = Tensor::from_vec(slopes, log_probs.dims(), &Device::Cpu).unwrap();
        let loss = (log_probs * slopes).unwrap().sum_all().unwrap();

        let gradients = loss.backward().unwrap();
        let norms = told["grad_norms"].as_object().unwrap();
        assert_eq!(norms.len(), checkpoint.weights.len(), "{name}: a gradient for every weight");
        let (mut worst, mut held) = (0.0_f32, 0);
        for (weight, norm) in norms {
            let gradient = gradients
                .get(&checkpoint.weights[weight])
                .unwrap_or_else(|| panic!("{name}: {weight} has no gradient"));
            let ours =
                f64::from(gradient.sqr().unwrap().sum_all().unwrap().to_scalar::<f32>().unwrap()).sqrt();
            let theirs = norm.as_f64().unwrap();
            assert!(
                (ours - theirs).abs() < 1e-4 * theirs.max(1e-3),
                "{name}: the gradient of {weight} has the norm {ours}, not {theirs}"
            );
            if let Some(expected) = reference.get(&format!("grad.{weight}")) {
                worst = worst.max(difference(gradient, expected));
                held += 1;
            }
        }
        println!("{name:<28} {held} gradients, worst {worst:.1e}");
        assert!(worst < 1e-4 && held > 10, "{name}: a gradient differs by {worst:e}");
    }
}

#[test]
fn a_broken_checkpoint_is_told_in_words() {
    let source = folders().into_iter().find(|f| !f.join("model.safetensors.index.json").is_file()).unwrap();
    let folder = tempfile::tempdir().unwrap();
    for file in ["config.json", "model.safetensors"] {
        std::fs::copy(source.join(file), folder.path().join(file)).unwrap();
    }
    let load = || Checkpoint::load(folder.path(), &Device::Cpu).map(|_| ()).unwrap_err().to_string();
    let config = std::fs::read_to_string(source.join("config.json")).unwrap();
    let write = |name: &str, bytes: &[u8]| std::fs::write(folder.path().join(name), bytes).unwrap();

    write("config.json", config.replace("\"num_hidden_layers\": 2", "\"num_hidden_layers\": 3").as_bytes());
    assert!(load().starts_with("the checkpoint has no tensor `model.layers.2."), "{}", load());
    write(
        "config.json",
        config.replace("\"intermediate_size\": 160", "\"intermediate_size\": 99").as_bytes(),
    );
    assert!(load().contains("has the shape [160, 64]; the config makes it [99, 64]"), "{}", load());
    write("config.json", br#"{"model_type": "mamba"}"#);
    assert!(load().contains("config.json"), "{}", load());
    write("config.json", b"{");
    assert!(load().contains("config.json"), "{}", load());
    write("config.json", config.as_bytes());
    let whole = std::fs::read(source.join("model.safetensors")).unwrap();
    for cut in [0, 4, 100, whole.len() / 2, whole.len() - 1] {
        write("model.safetensors", &whole[..cut]);
        assert!(load().starts_with("could not read `"), "{}", load());
    }
    std::fs::remove_file(folder.path().join("model.safetensors")).unwrap();
    assert!(load().starts_with("could not read `"), "{}", load());
}
