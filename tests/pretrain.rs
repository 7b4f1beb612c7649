//! Pretraining, and the model that ships: what is demonstrated, what is held out, and how the shipped
//! model's difficulty is spread.

#![allow(clippy::unwrap_used, clippy::print_stdout, missing_docs)]

mod scratch;

use std::collections::HashSet;

use allot_allocation::seed::Stream;
use allot_config::train::TrainConfig;
use allot_engine::core::{PassOptions, Sequence};
use allot_engine::model::{Checkpoint, Decoder, token_log_probs};
use allot_models::tokens::Tokens;
use allot_pretrain::{Alphabet, Care, Lessons, Recipe, folder, measure};
use allot_tasks::Ask;
use allot_tasks::generate::{Split, generate};
use candle_core::{Device, Tensor};
use scratch::{Scratch, root};

const SMALL: &str = r#"
[model]
hidden = 16
intermediate = 32
layers = 2
heads = 2
context = 16

[tokenizer]
alphabet = "0123456789+-*="

[[lessons]]
weights = [1, 1]
slips = [0.0, 0.5]
measured = [10, 10]
mistake = "carry"
[lessons.task]
kind = "sums"
style = "terse"
count = 400
held_out = 0.3
levels = [{ digits = 1 }, { digits = 2 }]

[[lessons]]
weights = [2]
slips = [1.0]
measured = [10]
mistake = "digit"
[lessons.task]
kind = "products"
style = "terse"
count = 50
held_out = 0.3
levels = [{ digits = 2 }]

[training]
seed = 1
steps = 60
batch = 32
threads = 2
report = 30

[training.optimizer]
learning_rate = 1e-2

[spread]
samples = 4
"#;

fn alphabet(recipe: &Recipe) -> Alphabet {
    Alphabet::new(&recipe.tokenizer.alphabet).unwrap()
}

fn lessons(recipe: &Recipe) -> Lessons {
    Lessons::new(recipe, alphabet(recipe)).unwrap()
}

/// The recipe of the model that ships.
fn shipped() -> Recipe {
    Recipe::read(&root().join("configs/pretrain-tiny.toml")).unwrap()
}

/// The text of tokens, `;` for the end.
fn text(recipe: &Recipe, tokens: &[u32]) -> String {
    let characters: Vec<char> = std::iter::once(';').chain(recipe.tokenizer.alphabet.chars()).collect();
    tokens.iter().map(|t| characters[*t as usize]).collect()
}

#[test]
fn the_tokenizer_that_is_written_is_the_one_that_was_trained_with() {
    let all = "0123456789+-*=, \n<é\u{1F600}";
    let (alphabet, scratch) = (Alphabet::new(all).unwrap(), Scratch::new());
    alphabet.write(scratch.path()).unwrap();
    let tokens = Tokens::read(scratch.path()).unwrap();
    for text in [all, "12+34=46", "  \n\n", "", "é<\u{1F600}", "1 2"] {
        let ids = alphabet.encode(text).unwrap();
        assert_eq!(tokens.encode_ask(&Ask::Text(text.to_owned())).unwrap(), ids, "{text:?}");
        assert_eq!(tokens.decode(&ids).unwrap(), text);
        let ended = [&ids[..], &[Alphabet::END]].concat();
        assert_eq!(tokens.decode(&ended).unwrap(), text, "the end is no text");
    }
    assert_eq!(tokens.stops(), [Alphabet::END]);
    assert_eq!(tokens.special(), &alphabet.special());
    assert_eq!(tokens.vocabulary(), alphabet.len());
    assert!(tokens.encode("1x").is_err(), "what is unknown is an error, and nothing else");
    assert!(alphabet.encode("1x").unwrap_err().what.contains("'x' of `1x` is not in the alphabet"));
    assert!(Alphabet::new("1231").unwrap_err().what.contains("'1' twice"));
}

#[test]
fn what_is_held_out_is_never_demonstrated() {
    for recipe in [Recipe::parse(SMALL, "small").unwrap(), shipped()] {
        let lessons = lessons(&recipe);
        // The same numbers in another order are the same problem.
        let sorted = |question: &str| {
            let sign = if question.contains('*') { '*' } else { '+' };
            let mut parts: Vec<&str> = question.trim_end_matches('=').split(sign).collect();
            parts.sort_unstable();
            (sign, parts.join(" "))
        };
        let held_out: HashSet<_> =
            lessons.levels.iter().flat_map(|l| &l.held_out).map(|e| sorted(&e.question)).collect();
        assert!(held_out.len() > 20);
        for level in &lessons.levels {
            assert!(!level.held_out.is_empty(), "{}", level.source);
            assert!(level.train.iter().all(|e| !held_out.contains(&sorted(&e.question))), "{}", level.source);
        }
        let mut stream = Stream::new(1);
        for _ in 0..2000 {
            let example = lessons.draw(Care::Usual, &mut stream).unwrap();
            let question = text(&recipe, &example.tokens[..example.prompt]);
            assert!(!held_out.contains(&sorted(&question)), "{question}");
        }
    }
}

/// What `benches/cuda/run` learns with: both files are whole, and fit each other.
#[test]
fn what_a_gpu_s_model_is_scored_by_was_never_demonstrated_to_it() {
    let recipe = Recipe::read(&root().join("benches/cuda/pretrain.toml")).unwrap();
    assert!(recipe.is_on_a_gpu());
    assert_eq!(recipe.shape(&alphabet(&recipe)).parameters(), 14_169_216);
    let lessons = lessons(&recipe);
    let demonstrated: HashSet<&str> =
        lessons.levels.iter().flat_map(|l| &l.train).map(|e| e.question.as_str()).collect();
    let text = std::fs::read_to_string(root().join("benches/cuda/compare.toml")).unwrap();
    let config = TrainConfig::parse(&text, "compare.toml").unwrap();
    let mut all = 0;
    for task in &config.tasks {
        for problem in generate(task, Split::HeldOut).unwrap().problems {
            let Ask::Text(question) = &problem.ask else { panic!("{problem:?}") };
            assert!(!demonstrated.contains(question.as_str()), "{question}");
            // What it is asked is what it knows to read.
            assert!(alphabet(&recipe).encode(question).is_ok(), "{question}");
            all += 1;
        }
    }
    assert!(all >= 1000, "{all}");
}

#[test]
fn examples_come_by_weight_and_go_wrong_by_slip() {
    let recipe = Recipe::parse(SMALL, "small").unwrap();
    let lessons = lessons(&recipe);
    let mut stream = Stream::new(2);
    // Of one digit, of two, products; and how many of each were right.
    let (mut drawn, mut right) = ([0_u32; 3], [0_u32; 3]);
    for _ in 0..4000 {
        let example = lessons.draw(Care::Usual, &mut stream).unwrap();
        let whole = text(&recipe, &example.tokens);
        let (question, answer) = whole.split_once('=').unwrap();
        assert_eq!(example.prompt, question.len() + 1);
        let answer: i64 = answer.strip_suffix(';').unwrap().parse().unwrap();
        let level = if question.contains('*') { 2 } else { usize::from(question.len() > 3) };
        let (a, b) = question.split_once(['+', '*']).unwrap();
        let (a, b): (i64, i64) = (a.parse().unwrap(), b.parse().unwrap());
        drawn[level] += 1;
        right[level] += u32::from(answer == if level == 2 { a * b } else { a + b });
    }
    // The standard deviation of a quarter is 27.
    assert!((890..1110).contains(&drawn[0]) && (890..1110).contains(&drawn[1]), "{drawn:?}");
    assert_eq!((right[0], right[2]), (drawn[0], 0));
    for _ in 0..1000 {
        let whole = text(&recipe, &lessons.draw(Care::Full, &mut stream).unwrap().tokens);
        let (question, answer) = whole.split_once('=').unwrap();
        let (a, b) = question.split_once(['+', '*']).unwrap();
        let (a, b): (i64, i64) = (a.parse().unwrap(), b.parse().unwrap());
        let gold = if question.contains('*') { a * b } else { a + b };
        assert_eq!(answer, format!("{gold};"), "{question} with care");
    }
    // A carry comes up in 45 % of sums of two digits, and half of them are forgotten.
    let share = f64::from(right[1]) / f64::from(drawn[1]);
    assert!((share - 0.775).abs() < 0.06, "{share}");
}

#[test]
fn a_recipe_makes_the_same_model_each_time() {
    let scratch = Scratch::new();
    scratch.write("small.toml", SMALL);
    let make = |folder: &str, more: &[&str]| {
        scratch.allot(&[&["pretrain", "small.toml", "--out", folder], more].concat())
    };
    let first = make("first", &[]);
    let weights = |name: &str| std::fs::read(scratch.path().join(name).join("model.safetensors")).unwrap();
    assert!(first.contains("step     60/60  loss "), "{first}");
    assert!(first.contains("sums/2 ") && first.ends_with("exit code 0"), "{first}");
    make("second", &[]);
    assert_eq!(weights("first"), weights("second"));
    make("short", &["--steps", "1"]);
    assert_ne!(weights("first"), weights("short"));

    // A table of the model as it lies there, twice the same, and not written over.
    let table =
        |said: &str| said[said.find("level ").unwrap()..said.find("at temperature 1").unwrap()].to_owned();
    assert_eq!(table(&make("first", &["--measure-only"])), table(&first));
    let again = make("first", &[]);
    assert!(again.contains("`first` is there already") && again.ends_with("exit code 2"), "{again}");
    assert_eq!(weights("first"), weights("second"));

    // It learned something: less is lost on answers than by guessing among ten digits and the end.
    let loss = |said: &str| -> f64 {
        said.split("60/60  loss ").nth(1).unwrap().split(' ').next().unwrap().parse().unwrap()
    };
    assert!(loss(&first) < 2.2, "{first}");
}

/// Stopped by a signal, killed, and ended when the model was there already: the same model, byte for byte, and nothing left.
#[cfg(unix)]
#[test]
fn a_training_that_is_stopped_goes_on_to_the_same_model() {
    let scratch = Scratch::new();
    scratch.write(
        "recipe.toml",
        SMALL.replace("steps = 60", "steps = 4000").replace("report = 30", "report = 50"),
    );
    let pretrain = |out: &str, more: &[&str]| {
        scratch.allot(&[&["pretrain", "recipe.toml", "--out", out], more].concat())
    };
    let said = pretrain("whole", &[]);
    assert!(said.ends_with("exit code 0"), "{said}");
    for signal in ["-TERM", "-KILL"] {
        let mut child = scratch.started(&["pretrain", "recipe.toml", "--out", "model"]);
        let has_state = || {
            let entries = std::fs::read_dir(scratch.path().join("model.unfinished"));
            entries
                .is_ok_and(|all| all.flatten().any(|e| e.file_name().to_string_lossy().starts_with("step-")))
        };
        while !has_state() {
            assert!(child.try_wait().unwrap().is_none(), "it was over before it was stopped");
            std::thread::sleep(std::time::Duration::from_millis(1));
        }
        assert!(
            std::process::Command::new("kill")
                .args([signal, &child.id().to_string()])
                .status()
                .unwrap()
                .success()
        );
        assert_eq!(child.wait().unwrap().code(), (signal == "-TERM").then_some(1));
        assert!(!scratch.path().join("model").exists(), "a model that is not done");
    }
    let said = pretrain("model", &["-o", "training.seed=2"]);
    assert!(
        said.contains("error: `model.unfinished` has an unfinished training by another recipe"),
        "{said}"
    );
    let said = pretrain("model", &[]);
    assert!(said.contains("goes on after step ") && said.ends_with("exit code 0"), "{said}");
    let weights = |model: &str| std::fs::read(scratch.path().join(model).join("model.safetensors")).unwrap();
    assert_eq!(weights("model"), weights("whole"));
    let names = |folder: &str| {
        let entries = std::fs::read_dir(scratch.path().join(folder)).unwrap();
        entries.map(|entry| entry.unwrap().file_name()).collect::<std::collections::BTreeSet<_>>()
    };
    assert_eq!(names("model"), names("whole"));
    assert_eq!(names("").len(), 3, "what led to a model is gone: {:?}", names(""));
    let said = pretrain("model", &[]);
    assert!(said.contains("error: `model` is there already, and is not empty"), "{said}");
}

#[test]
fn the_core_s_model_is_the_decoder_s() {
    let scratch = Scratch::new();
    let path = scratch.path().join("model");
    scratch.write("small.toml", SMALL);
    scratch.allot(&["pretrain", "small.toml", "--out", "model", "--steps", "20"]);
    let (recipe, tokens) = (Recipe::parse(SMALL, "small").unwrap(), Tokens::read(&path).unwrap());
    let ids = tokens.encode("12+34=46").unwrap();
    let checkpoint = Checkpoint::load(&path, &Device::Cpu).unwrap();
    let decoder = Decoder::new(&checkpoint);
    let tokens = Tensor::new(vec![ids.as_slice()], &Device::Cpu).unwrap();
    let logits = decoder.forward(&tokens).unwrap().logits;
    let theirs = token_log_probs(&logits, &tokens).unwrap();
    let theirs: Vec<f32> = theirs.flatten_all().unwrap().to_vec1().unwrap();
    let mut core = folder::read(&path, &alphabet(&recipe), &recipe.training, &Device::Cpu).unwrap();
    let options = PassOptions { temperature: 1.0, recompute: false };
    let ours = core
        .score(&[Sequence { tokens: &ids, prompt: 1, observed: &[], mask: None }], options, false)
        .unwrap()
        .swap_remove(0);
    assert!(ours.iter().zip(&theirs).all(|(o, t)| (o.log_prob - t).abs() < 1e-4), "{ours:?} {theirs:?}");
}

/// The quickstart lives from this: always right, never right, and much in between.
#[test]
fn the_shipped_model_s_difficulty_is_spread() {
    let (recipe, folder) = (shipped(), root().join("host/models/shipped/tiny-sums"));
    let lessons = lessons(&recipe);
    let core = folder::read(&folder, &alphabet(&recipe), &recipe.training, &Device::Cpu).unwrap();
    assert_eq!(*core.shape(), recipe.shape(&alphabet(&recipe)), "it was made by this recipe");
    let spread =
        measure(core.as_ref(), &lessons, &alphabet(&recipe), recipe.spread, recipe.training.seed).unwrap();
    println!("{spread}");
    let total = spread.total();
    let share = |is: &dyn Fn(u32) -> bool| {
        total.right.iter().filter(|n| is(**n)).count() as f64 / total.right.len() as f64
    };
    let sampled = total.right.iter().map(|n| f64::from(*n)).sum::<f64>() / 16.0 / total.right.len() as f64;
    assert!((0.28..0.42).contains(&sampled), "{sampled}");
    assert!((0.1..0.3).contains(&share(&|n| n == 16)), "always");
    assert!((0.15..0.35).contains(&share(&|n| n == 0)), "never");
    assert!(spread.rows[0].right.iter().all(|n| *n > 8), "sums of one digit are easy");
    let size: u64 = std::fs::read_dir(&folder).unwrap().map(|f| f.unwrap().metadata().unwrap().len()).sum();
    assert!(size < 4_000_000, "{size} bytes in the repository");
    let tokens = Tokens::read(&folder).unwrap();
    tokens.fits(core.shape().vocabulary).unwrap();
    assert_eq!(tokens.encode("12+34=").unwrap(), alphabet(&recipe).encode("12+34=").unwrap());
}

#[test]
fn the_shipped_models_that_play_are_of_their_recipes_and_were_shown_whole_games() {
    for name in ["guess", "calculator"] {
        let recipe = Recipe::read(&root().join(format!("configs/pretrain-{name}.toml"))).unwrap();
        let folder = root().join(format!("host/models/shipped/tiny-{name}"));
        let core = folder::read(&folder, &alphabet(&recipe), &recipe.training, &Device::Cpu).unwrap();
        assert_eq!(*core.shape(), recipe.shape(&alphabet(&recipe)), "{name}");
        let (lessons, mut stream) = (lessons(&recipe), Stream::new(1));
        let replies = [Care::Full, Care::Usual].map(|care| {
            (0..200).map(|_| lessons.draw(care, &mut stream).unwrap().observed.len()).sum::<usize>()
        });
        assert!(replies.iter().all(|replies| *replies > 100), "{name}: {replies:?}");
        // A careless player of the calculator leaves it alone, and one who guesses calls as often.
        assert!(name == "guess" || replies[0] > replies[1], "{name}: {replies:?}");
    }
}

#[test]
fn what_a_recipe_can_t_be() {
    let check = |from: &str, to: &str, expected: &str| {
        let text = SMALL.replacen(from, to, 1);
        assert_ne!(text, SMALL, "{from}");
        let error = Recipe::parse(&text, "small")
            .and_then(|recipe| Lessons::new(&recipe, Alphabet::new(&recipe.tokenizer.alphabet)?));
        let error = error.map(|_| ()).unwrap_err().to_string();
        assert!(error.contains(expected), "{to}: {error}");
    };
    check("batch = 32", "batch = 0", "`small`: `training.batch` is 0; expected at least 1");
    check("batch = 32", "bach = 32", "unknown field `bach`");
    check("batch = 32", "batch = 32\ndevice = \"gpu\"", "no device is called `gpu`");
    check("batch = 32", "batch = 32\ndtype = \"f16\"", "unknown variant `f16`");
    check("hidden = 16", "hidden = 18", "`model.hidden` is 18");
    check("batch = 32", "batch = 32\ncareful = 1.1", "`training.careful` is 1.1");
    check("1e-2", "-1.0", "`training.optimizer.learning_rate` is -1");
    check("weights = [1, 1]", "weights = [1]", "the lesson of sums has 1 `weights` for 2 levels");
    check("measured = [10]", "measured = []", "the lesson of products has 0 `measured` for 1 levels");
    check("slips = [0.0, 0.5]", "slips = [0.0, 1.5]", "the lesson of sums has 1.5 among its `slips`");
    check("slips = [0.0, 0.5]", "slips = [0.0, nan]", "the lesson of sums has NaN among its `slips`");
    check("0123456789+-*=", "0123456789+-=", "'*' of `");
    check("\"digit\"", "\"carry\"", "`products/1`: in `");
    check("\"digit\"", "\"careless\"", "`products/1`: in `");
    let game = SMALL.replace("+-*=", "+-*:?!=").replace("\"products\"", "\"guess\"");
    let recipe = Recipe::parse(&game, "small").unwrap();
    let error = Lessons::new(&recipe, alphabet(&recipe)).map(|_| ()).unwrap_err().to_string();
    assert!(
        error.contains("`guess/1` is played in turns, but its lesson's mistake is not `careless`"),
        "{error}"
    );
    check("style = \"terse\"", "style = \"words\"", "is not in the alphabet");
    check("held_out = 0.3", "held_out = 1.0", "`held_out` is 1");
    check("context = 16", "context = 6", "`model.context` is 6");
}
