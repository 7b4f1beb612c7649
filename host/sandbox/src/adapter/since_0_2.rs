//! The parts of an adapter that contracts 0.2 and 0.3 share. bindgen generates new types for each version.

/// Calls, questions and conversions, over the functions `settings_of`, `needs`, `request` and `advantage` and the types
/// `Lists` and `Rows` in scope, which tell the versions apart.
macro_rules! since_0_2 {
    () => {
        fn decide(
            policy: &Policy,
            store: &mut Store<GuestState>,
            run: &ours::Run,
            state: &[u8],
            view: &ours::View,
        ) -> Answer<ours::Plan> {
            let allocator = policy.rollout_allocation_allocator();
            store.data_mut().facts = Some(Facts::of(run, view));
            let answer = with_run_and_view(run, view, |run, view| {
                allocator.call_decide(&mut *store, run, state, view)
            });
            store.data_mut().facts = None;
            Ok(match answer? {
                Ok(answer) => {
                    let plan = plan(answer, run);
                    uses_what_it_described(&plan, run)?;
                    Ok(plan)
                }
                Err(error) => Err(refusal(error)),
            })
        }

        // === Requests of the guest ===

        impl facts::Host for GuestState {
            fn counts(&mut self, what: facts::Count, of: facts::Prompts) -> wasmtime::Result<Vec<u32>> {
                Ok(self.facts()?.numbers(&prompts(of), COUNTS[what as usize].1)?)
            }

            fn measures(&mut self, what: facts::Measure, of: facts::Prompts) -> wasmtime::Result<Vec<f32>> {
                Ok(self.facts()?.numbers(&prompts(of), MEASURES[what as usize].1)?)
            }

            fn column(&mut self, name: String, of: facts::Prompts) -> wasmtime::Result<Vec<f32>> {
                Ok(self.facts()?.column(&name, &prompts(of))?)
            }

            fn costs(&mut self) -> wasmtime::Result<facts::TokenCosts> {
                let ours::TokenCosts { reading, generating, learning } = self.facts()?.costs();
                Ok(facts::TokenCosts { reading, generating, learning })
            }
        }

        fn prompts(of: facts::Prompts) -> Prompts {
            match of {
                facts::Prompts::All => Prompts::All,
                facts::Prompts::Between((first, end)) => Prompts::Between(first, end),
                facts::Prompts::Listed(prompts) => Prompts::Listed(prompts),
            }
        }

        // === To the guest ===

        /// Lends a run's constants and a view to `call`.
        pub(crate) fn with_run_and_view<T>(
            run: &ours::Run,
            view: &ours::View,
            call: impl FnOnce(types::Run<'_>, types::View<'_>) -> T,
        ) -> T {
            let shown = Shown::of(run);
            with_run(run, |run| with_view(view, shown, |view| call(run, view)))
        }

        /// Lends a run's constants to `call`.
        pub(crate) fn with_run<T>(run: &ours::Run, call: impl FnOnce(types::Run<'_>) -> T) -> T {
            let settings = lend_settings(&run.settings);
            // Records of runs under a policy of an older contract have no terms.
            let terms = run.terms.clone().unwrap_or_default();
            let parts = terms.parts.iter().filter(|_| run.gives(Need::Parts));
            let parts: Vec<&str> = parts.map(String::as_str).collect();
            let categories: Vec<Vec<&str>> = terms
                .columns
                .iter()
                .map(|column| column.categories.iter().map(String::as_str).collect())
                .collect();
            let columns = terms.columns.iter().zip(&categories);
            let columns: Vec<types::Column<'_>> = columns
                .map(|(column, categories)| types::Column {
                    name: &column.name,
                    width: column.width,
                    categories,
                })
                .collect();
            let sampling = settings_of(terms.sampling());
            call(types::Run {
                settings: &settings,
                prompts: run.prompts,
                steps: run.steps,
                groups: run.groups,
                rollouts: run.rollouts,
                pool: run.pool,
                max_age: run.max_age,
                lag: run.lag,
                columns: &columns,
                parts: &parts,
                sampling: types::SamplingRange {
                    default: sampling,
                    least: run.requests().map_or(sampling, |range| settings_of(range.least)),
                    most: run.requests().map_or(sampling, |range| settings_of(range.most)),
                },
                update: types::Update { mini_batch: terms.update.mini_batch, passes: terms.update.passes },
            })
        }

        /// Lends a view to `call`.
        fn with_view<T>(view: &ours::View, shown: Shown, call: impl FnOnce(types::View<'_>) -> T) -> T {
            let pool: Vec<types::Prompt> = view.pool.iter().map(prompt).collect();
            let lists: Vec<Lists<'_>> = view.groups.iter().map(|group| Lists::of(group, shown)).collect();
            let rows: Vec<Rows<'_>> = lists.iter().map(Lists::rows).collect();
            let groups: Vec<types::Group<'_>> =
                view.groups.iter().zip(lists.iter().zip(&rows)).map(|(g, (l, r))| l.lend(g, r)).collect();
            let unscored: Vec<types::Tally> = view.unscored.iter().copied().map(tally).collect();
            call(types::View {
                step: view.step,
                round: view.round,
                seed: view.seed,
                budget: types::Budget {
                    rounds: view.budget.rounds,
                    step_rollouts: view.budget.step_rollouts,
                    run_rollouts: view.budget.run_rollouts,
                    run_tokens: view.budget.run_tokens,
                    run_flops: view.budget.run_flops.unwrap_or(f64::MAX),
                },
                pool: &pool,
                groups: &groups,
                unscored: &unscored,
                under_way: &[],
            })
        }

        fn prompt(p: &ours::Prompt) -> types::Prompt {
            let past = p.past.map(|past| types::Past {
                step: past.step,
                visits: past.visits,
                rollouts: past.rollouts,
                correct: past.correct,
                mean: past.mean,
                std: past.std(),
                mean_length: past.tokens,
                streak: past.streak,
                total_rollouts: past.total_rollouts,
                total_correct: past.total_correct,
            });
            types::Prompt { id: p.id.0, epoch: p.epoch, length: p.tokens, past }
        }

        fn tally(tally: ours::Tally) -> types::Tally {
            types::Tally { prompt: tally.prompt.0, rollouts: tally.rollouts }
        }

        // === From the guest ===

        /// Converts a guest's description.
        fn description(d: types::Description) -> Description {
            Description {
                name: d.name,
                version: d.version,
                summary: d.summary,
                settings: settings(d.settings),
                signals: d.signals,
                columns: d.columns,
                needs: needs(d.needs),
            }
        }

        /// Converts a guest's plan.
        fn plan(p: types::Plan, run: &ours::Run) -> ours::Plan {
            let action = match p.action {
                types::Action::Sample(requests) => {
                    ours::Action::Sample(requests.into_iter().map(|r| request(r, run)).collect())
                }
                types::Action::Train(batch) => ours::Action::Train(ours::Batch {
                    picks: batch.picks.into_iter().map(pick).collect(),
                    hold: batch.hold.into_iter().map(hold).collect(),
                    update: batch.update.map(geometry),
                }),
            };
            ours::Plan {
                action,
                skip: ids(p.skip),
                defer: ids(p.defer),
                evict: ids(p.evict),
                state: p.state,
                metrics: p.metrics,
            }
        }

        fn pick(p: types::Pick) -> ours::Pick {
            ours::Pick {
                prompt: PromptId(p.prompt),
                rollouts: p.rollouts,
                advantage: advantage(p.advantage),
                weight: p.weight,
            }
        }

        fn hold(h: types::Hold) -> ours::Hold {
            ours::Hold { prompt: PromptId(h.prompt), rollouts: h.rollouts }
        }

        fn geometry(update: types::Update) -> ours::Geometry {
            ours::Geometry { mini_batch: update.mini_batch, passes: update.passes }
        }
    };
}

pub(crate) use since_0_2;
