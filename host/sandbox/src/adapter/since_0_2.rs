//! The parts of an adapter that contracts 0.2 and 0.3 share. bindgen generates new types for each version.

/// Calls, questions and conversions, over the functions `settings_of` and `sampler_settings` in scope. The arguments are what a
/// version has beyond 0.2: needs, kinds of advantages, lists of a group and of a request. Its lists of a group are made by
/// the functions `turns_of`, `stopped_of` and `origin_of`, and those of a request by `start_of`.
macro_rules! since_0_2 {
    (
        needs: [$($flag:ident => $need:ident),*],
        advantages: [$($kind:ident),*],
        group: [$($turns:ident, $stopped:ident, $origins:ident)?],
        request: [$($starts:ident)?]
    ) => {
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
            let made: Vec<Made<'_>> = view.groups.iter().map(|group| Made::of(group, shown)).collect();
            let lists = view.groups.iter().zip(&made);
            let lists: Vec<Lists<'_>> = lists.map(|(group, made)| Lists::of(group, made, shown)).collect();
            let groups = view.groups.iter().zip(made.iter().zip(&lists));
            let groups: Vec<types::Group<'_>> =
                groups.map(|(group, (made, lists))| lend(group, made, lists)).collect();
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

        /// What is made of a group for the guest, because the host has it in another form.
        struct Made<'g> {
            trained: Cow<'g, [u32]>,
            sampling: Vec<types::Sampling>,
            $(
                $turns: Vec<Vec<types::Turn>>,
                $stopped: Vec<types::Stopped>,
                $origins: Vec<Option<types::Origin>>,
            )?
        }

        impl<'g> Made<'g> {
            fn of(group: &'g ours::Group, shown: Shown) -> Self {
                $(
                    let of = |shown: bool| if shown { group.len() } else { 0 };
                    let $turns = (0..of(shown.turns)).map(|i| turns_of(group, i)).collect();
                    let $stopped = (0..of(shown.turns)).map(|i| stopped_of(group, i)).collect();
                    let $origins = (0..of(shown.origins)).map(|i| origin_of(group, i)).collect();
                )?
                Self {
                    trained: shown.trained(group),
                    sampling: shown.sampling(group, settings_of),
                    $($turns, $stopped, $origins,)?
                }
            }
        }

        /// A group's lists of lists.
        struct Lists<'g> {
            signals: Vec<&'g [f32]>,
            parts: Vec<&'g [f32]>,
            $($turns: Vec<&'g [types::Turn]>,)?
        }

        impl<'g> Lists<'g> {
            fn of(group: &'g ours::Group, made: &'g Made<'g>, shown: Shown) -> Self {
                let ((signals, parts), _) = (shown.signals(group), made);
                Self { signals, parts, $($turns: made.$turns.iter().map(Vec::as_slice).collect(),)? }
            }
        }

        fn lend<'g>(group: &'g ours::Group, made: &'g Made<'g>, lists: &'g Lists<'g>) -> types::Group<'g> {
            types::Group {
                prompt: group.prompt.0,
                epoch: group.epoch,
                rewards: &group.rewards,
                correct: &group.correct,
                lengths: &group.tokens,
                ages: &group.ages,
                truncated: &group.truncated,
                signals: &lists.signals,
                parts: &lists.parts,
                trained: &made.trained,
                sampling: &made.sampling,
                $($turns: &lists.$turns, $stopped: &made.$stopped, $origins: &made.$origins,)?
            }
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

        fn needs(needs: types::Needs) -> Vec<Need> {
            let named = [
                (types::Needs::ANY_PROMPT, Need::AnyPrompt),
                (types::Needs::REPLAY, Need::Replay),
                (types::Needs::SAMPLING, Need::Sampling),
                (types::Needs::STOPPING, Need::Stopping),
                (types::Needs::UPDATING, Need::Updating),
                (types::Needs::PARTS, Need::Parts),
                $((types::Needs::$flag, Need::$need),)*
            ];
            named.into_iter().filter(|(flag, _)| needs.contains(*flag)).map(|(_, need)| need).collect()
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

        fn request(r: types::Request, run: &ours::Run) -> ours::Request {
            let until = r.until.map(|enough| ours::Enough {
                correct: enough.correct,
                wrong: enough.wrong,
                portion: enough.portion,
            });
            ours::Request {
                until,
                sampling: r.sampling.map(|own| sampler_settings(own, run)),
                $($starts: r.$starts.into_iter().map(|start| start.map(start_of)).collect(),)?
                ..ours::Request::new(PromptId(r.prompt), r.count)
            }
        }

        fn pick(p: types::Pick) -> ours::Pick {
            ours::Pick {
                prompt: PromptId(p.prompt),
                rollouts: p.rollouts,
                advantage: match p.advantage {
                    types::Advantage::Picked => ours::Advantage::Picked,
                    types::Advantage::Group => ours::Advantage::Group,
                    types::Advantage::Among(positions) => ours::Advantage::Among(positions),
                    types::Advantage::Given(own) => ours::Advantage::Given(own),
                    $(types::Advantage::$kind(own) => ours::Advantage::$kind(own),)*
                },
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
