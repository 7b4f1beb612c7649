//! The part of an adapter that all versions of the graders' contract share. bindgen generates new types for each version.

/// A grader's adapter, over the types of the modules `types` and `log` in scope. The argument takes what a version has beyond
/// 0.1 from a description: whether verdicts compare answers.
macro_rules! graders {
    ($compares:expr) => {
        /// Fits a component to the contract.
        pub(crate) fn link(
            linker: &mut wasmtime::component::Linker<GuestState>,
            component: &wasmtime::component::Component,
        ) -> wasmtime::Result<crate::judged::Linked> {
            Reward::add_to_linker::<_, wasmtime::component::HasSelf<_>>(linker, |guest| guest)?;
            let pre = linker.instantiate_pre(component).and_then(RewardPre::new)?;
            Ok(Box::new(move |store| Ok(Box::new(pre.instantiate(store)?))))
        }

        impl crate::judged::Guest for Reward {
            fn describe(&self, store: &mut Store<GuestState>) -> wasmtime::Result<GraderDescription> {
                let d = self.rollout_reward_grader().call_describe(store)?;
                let compares = $compares(&d);
                let types::Description { name, version, summary, settings: described, parts, .. } = d;
                let settings = settings(described);
                Ok(GraderDescription { name, version, summary, settings, parts, compares })
            }

            fn begin(&self, store: &mut Store<GuestState>, settings: &[(String, Value)]) -> Answer<()> {
                let begun = self.rollout_reward_grader().call_begin(store, &lend_settings(settings))?;
                Ok(begun.map_err(|error| match error {
                    types::Error::Setting(bad) => bad_setting(bad),
                    types::Error::Other(reason) => crate::fault::Refusal::other(&reason),
                }))
            }

            fn grade(
                &self,
                store: &mut Store<GuestState>,
                batch: &[Asked<'_>],
            ) -> wasmtime::Result<Vec<Judged>> {
                let golds: Vec<Vec<&str>> =
                    batch.iter().map(|asked| asked.gold.iter().map(String::as_str).collect()).collect();
                let questions = batch.iter().zip(&golds);
                let questions: Vec<types::Question<'_>> = questions
                    .map(|(Asked { prompt, source, answer, .. }, gold)| types::Question {
                        prompt,
                        source,
                        gold,
                        answer,
                    })
                    .collect();
                let verdicts = self.rollout_reward_grader().call_grade(store, &questions)?;
                Ok(verdicts.into_iter().map(judged).collect())
            }
        }

        fn judged(verdict: types::Verdict) -> Judged {
            let unusable = |why: &str| Err(crate::judged::NoVerdict::Unusable(why.to_owned()));
            match verdict {
                types::Verdict::Unscorable(why) => Err(crate::judged::NoVerdict::Unscorable(
                    allot_allocation::shown::word(why.trim(), crate::judged::REASON),
                )),
                types::Verdict::Judged(types::Judgement { correct, reward }) => {
                    let score = crate::judged::Score { correct, ..crate::judged::Score::default() };
                    match reward {
                        types::Reward::ByCorrectness if correct.is_none() => {
                            unusable("said neither whether the answer is correct nor a reward")
                        }
                        types::Reward::ByCorrectness => Ok(score),
                        types::Reward::Number(reward) => {
                            Ok(crate::judged::Score { reward: Some(reward), ..score })
                        }
                        types::Reward::Parts(parts) if parts.is_empty() => {
                            unusable("gave a reward in parts, but no part")
                        }
                        types::Reward::Parts(parts) => {
                            let parts = parts.into_iter().map(|part| (part.name, part.value)).collect();
                            Ok(crate::judged::Score { parts, ..score })
                        }
                    }
                }
            }
        }
    };
}

pub(crate) use graders;
