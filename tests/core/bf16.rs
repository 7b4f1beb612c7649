//! bf16 on the CPU: against a twin that rounds at the same places, with and without the processor's instruction for
//! it, and that a token has one log-probability there, too.

use super::*;

fn core(case: &Case, setup: Setup) -> Cpu {
    Cpu::new(&case.checkpoint, Setup { precision: Precision::Bf16, ..setup }).unwrap()
}

fn off(a: &[f32], b: &[f32]) -> (f64, f64) {
    let off = a.iter().zip(b).map(|(a, b)| f64::from(a - b).abs());
    let (sum, most) = off.fold((0.0, 0.0), |(sum, most), off| (sum + off, f64::max(most, off)));
    (sum / a.len() as f64, most)
}

/// A number that lies next to the middle of two in bf16 goes to one here and to the other there, since sums are made in
/// other orders: so the two are far closer than either is to float32, and not the same.
#[test]
fn it_computes_what_a_twin_does_that_rounds_at_the_same_places() {
    for folder in folders() {
        let (name, case) = (name(&folder), Case::read(&folder));
        let whole = ragged(&prompts());
        let sequences: Vec<Sequence<'_>> = whole
            .iter()
            .map(|(tokens, prompt)| Sequence { tokens, prompt: *prompt, observed: &[], mask: None })
            .collect();
        let by_twin = |decoder: &Decoder<'_>| -> (Vec<f32>, HashMap<String, Vec<f32>>) {
            let (mut said, mut loss) = (Vec::new(), Tensor::zeros((), DType::F32, &Device::Cpu).unwrap());
            for (i, sequence) in sequences.iter().enumerate() {
                let tokens = Tensor::new(vec![sequence.tokens], &Device::Cpu).unwrap();
                let logits = decoder.forward(&tokens).unwrap().logits;
                let log_probs = allot_engine::model::token_log_probs(&logits, &tokens).unwrap();
                let answer = log_probs.narrow(1, sequence.prompt - 1, sequence.answer()).unwrap();
                said.extend(numbers(&answer));
                let c: Vec<f32> = (0..sequence.answer()).map(|t| coefficient(i, t)).collect();
                let c = Tensor::from_vec(c, (1, sequence.answer()), &Device::Cpu).unwrap();
                loss = (loss + (answer * c).unwrap().sum_all().unwrap()).unwrap();
            }
            let gradients = loss.backward().unwrap();
            let all = case.checkpoint.weights.iter();
            (said, all.map(|(name, w)| (name.clone(), numbers(gradients.get(w).unwrap()))).collect())
        };
        let (twin, twin_gradients) = by_twin(&Decoder::rounding(&case.checkpoint));
        let (exact, exact_gradients) = by_twin(&Decoder::new(&case.checkpoint));

        let mut core = core(&case, setup(3));
        let loss = |i: usize, statistics: &[TokenStatistics]| {
            (0..statistics.len()).map(|t| coefficient(i, t)).collect()
        };
        core.learn(&sequences, PLAIN, &loss).unwrap();
        let scored = core.score(&sequences, PLAIN, false).unwrap();
        let ours: Vec<f32> = scored.iter().flatten().map(|t| t.log_prob).collect();
        let ((mean, most), (mean_exact, most_exact)) = (off(&ours, &twin), off(&ours, &exact));
        println!(
            "{name:<28} log-probs {mean:.1e}, at most {most:.1e}; from float32 {mean_exact:.1e}, {most_exact:.1e}"
        );
        assert!(mean < mean_exact / 4.0 && most < most_exact / 2.0, "{name}: {mean:e} of {mean_exact:e}");

        let gathered = core.gathered().unwrap();
        let (mut from_twin, mut from_exact) = (0.0, 0.0);
        for (weight, _, ours) in core.arena().tensors(&gathered) {
            let (twin, exact) = (&twin_gradients[weight], &exact_gradients[weight]);
            let size = exact.iter().fold(1e-2_f32, |m, g| m.max(g.abs()));
            from_twin += off(ours, twin).0 / f64::from(size);
            from_exact += off(ours, exact).0 / f64::from(size);
            assert!(
                off(ours, twin).1 < 0.1 * f64::from(size),
                "{name}: {weight}: {:e} of {size:e}",
                off(ours, twin).1
            );
        }
        println!("{name:<28} gradients {:.2} of what they are from float32", from_twin / from_exact);
        assert!(from_twin < from_exact / 2.0, "{name}: {from_twin:e}, {from_exact:e}");
    }
}

#[test]
fn with_and_without_an_instruction_for_vectors_it_samples_scores_and_learns_the_same() {
    let vectors = Instruction::all().into_iter().find(|one| matches!(one, Instruction::Avx512Bf16(_)));
    for folder in folders() {
        let case = Case::read(&folder);
        let prompts = prompts();
        let all = requests(&prompts, 4);
        let whole = ragged(&prompts);
        let sequences: Vec<Sequence<'_>> = whole
            .iter()
            .map(|(tokens, prompt)| Sequence { tokens, prompt: *prompt, observed: &[], mask: None })
            .collect();
        let made = |mut core: Cpu| {
            let answers = core.answers(&all, &[5].into(), 16).unwrap();
            let scored = core.score(&sequences, PLAIN, false).unwrap();
            let loss = |i: usize, statistics: &[TokenStatistics]| {
                (0..statistics.len()).map(|t| coefficient(i, t)).collect()
            };
            core.learn(&sequences, PLAIN, &loss).unwrap();
            let gradients = core.gathered().unwrap();
            core.step(&OptimizerConfig::default(), 1e-3).unwrap();
            let weights = core.weights().unwrap().into_owned();
            (answers, scored, gradients, weights, core.score(&sequences, PLAIN, false).unwrap())
        };
        let (with, without) = (made(core(&case, setup(2)).by(vectors)), made(core(&case, setup(2)).by(None)));
        assert!(with.0 == without.0 && with.1 == without.1, "{}: sampling and scoring", name(&folder));
        assert!(with.2 == without.2 && with.3 == without.3, "{}: learning", name(&folder));
        assert!(with.4 == without.4 && with.4 != with.1, "{}: after a step", name(&folder));
    }
}

/// So a fresh rollout's ratio is exactly 1, in an update of any size on any number of threads.
#[test]
fn a_token_s_log_probability_is_one_number_in_sampling_scoring_and_learning() {
    for (folder, precision) in folders().iter().flat_map(|f| [(f, Precision::F32), (f, Precision::Bf16)]) {
        let (case, prompts) = (Case::read(folder), prompts());
        let all = requests(&prompts, 5);
        let new = |threads, reference| {
            Cpu::new(&case.checkpoint, Setup { precision, reference, ..setup(threads) }).unwrap()
        };
        let answers = new(2, false).answers(&all, &[5].into(), 7).unwrap();
        let whole: Vec<Vec<u32>> =
            all.iter().zip(&answers).map(|(r, a)| [r.prompt, &a.tokens].concat()).collect();
        let sequences: Vec<Sequence<'_>> = whole
            .iter()
            .zip(&all)
            .map(|(w, r)| Sequence { tokens: w, prompt: r.prompt.len(), observed: &[], mask: None })
            .collect();
        for (threads, micro) in [(1, 100), (2, 9), (3, 1)] {
            let mut core = new(threads, true);
            for (i, sequences) in sequences.chunks(micro).enumerate() {
                for reference in [false, true] {
                    let scored = core.score(sequences, PLAIN, reference).unwrap();
                    for (scored, answer) in scored.iter().zip(&answers[i * micro..]) {
                        let scored: Vec<f32> = scored.iter().map(|t| t.log_prob).collect();
                        assert!(scored == answer.log_probs, "{}: {threads} threads", name(folder));
                    }
                }
                let loss = |j: usize, learned: &[TokenStatistics]| {
                    let learned: Vec<f32> = learned.iter().map(|t| t.log_prob).collect();
                    assert!(
                        learned == answers[i * micro + j].log_probs,
                        "{}: {threads} threads",
                        name(folder)
                    );
                    vec![1.0; learned.len()].into()
                };
                core.learn(sequences, PassOptions { recompute: i % 2 == 0, ..PLAIN }, &loss).unwrap();
            }
        }
    }
}

#[test]
fn a_run_goes_on_to_the_same_bits() {
    let case = Case::read(&folders()[0]);
    let sequences = [Sequence { tokens: &case.ids, prompt: 4, observed: &[], mask: None }];
    let step = |core: &mut Cpu| {
        core.learn(&sequences, PLAIN, &|_, statistics| vec![-0.1; statistics.len()].into()).unwrap();
        core.step(&OptimizerConfig::default(), 1e-3).unwrap();
    };
    let scratch = tempfile::tempdir().unwrap();
    let (training, model) = (scratch.path(), scratch.path().join("model"));
    let mut first = core(&case, setup(2));
    step(&mut first);
    first.save_training(training).unwrap();
    Core::checkpoint(&first).unwrap().export(&model, Precision::F32, &SpecialIds::default()).unwrap();
    let mut second = core(&case, setup(2));
    second.load_training(training, &model, 1).unwrap();
    assert!(first.weights().unwrap() == second.weights().unwrap());
    let mut fork = first.fork().unwrap().unwrap();
    step(&mut first);
    step(&mut second);
    fork.learn(&sequences, PLAIN, &|_, statistics| vec![-0.1; statistics.len()].into()).unwrap();
    fork.step(&OptimizerConfig::default(), 1e-3).unwrap();
    assert!(first.weights().unwrap() == second.weights().unwrap(), "resumed");
    assert!(first.weights().unwrap() == fork.weights().unwrap(), "a copy that learns beside");
    let weights = first.weights().unwrap();
    assert!(weights.iter().any(|w| w.to_bits() & 0xffff != 0), "the weights that are trained are float32");
}

#[test]
fn adapters_are_merged_and_then_rounded() {
    let case = Case::read(&folders()[0]);
    let lora = Setup { lora: Some(LoraConfig { rank: 4, alpha: 8.0 }), ..setup(2) };
    let (mut adapted, mut bare) = (core(&case, lora), core(&case, setup(2)));
    let sequences = [Sequence { tokens: &case.ids, prompt: 4, observed: &[], mask: None }];
    let said = |core: &mut Cpu, reference| core.score(&sequences, PLAIN, reference).unwrap();
    let before = said(&mut bare, false);
    assert!(said(&mut adapted, false) == before, "fresh adapters change nothing");
    for _ in 0..3 {
        adapted.learn(&sequences, PLAIN, &|_, statistics| vec![-1.0; statistics.len()].into()).unwrap();
        adapted.step(&OptimizerConfig { max_norm: 0.0, ..OptimizerConfig::default() }, 1e-2).unwrap();
    }
    let sum = |said: &[Vec<TokenStatistics>]| said[0].iter().map(|t| f64::from(t.log_prob)).sum::<f64>();
    let after = said(&mut adapted, false);
    assert!(sum(&after) > sum(&before) + 1.0, "{} to {}", sum(&before), sum(&after));
    assert!(said(&mut adapted, true) == before, "the reference is the model without them");
    let merged = adapted.merged().into_owned();
    let setup = Setup { precision: Precision::Bf16, ..setup(2) };
    let mut merged = Cpu::of(adapted.arena().clone(), merged, setup).unwrap();
    assert!(said(&mut merged, false) == after);
}
