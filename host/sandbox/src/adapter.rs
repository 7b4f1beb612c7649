//! Macros shared by the adapters of all contract versions. bindgen generates new types for each version.

pub(crate) mod graders;
pub(crate) mod since_0_2;

/// Conversions between the host's types and the types of the modules `types` and `log` in scope.
macro_rules! conversions {
    () => {
        impl types::Host for crate::guest::GuestState {}

        impl log::Host for crate::guest::GuestState {
            fn write(&mut self, level: log::Level, line: String) {
                use allot_allocation::log::Level;
                let level = match level {
                    log::Level::Debug => Level::Debug,
                    log::Level::Info => Level::Info,
                    log::Level::Warn => Level::Warn,
                    log::Level::Error => Level::Error,
                };
                crate::guest::GuestState::write(self, level, &line);
            }
        }

        fn lend_settings(
            settings: &[(String, allot_allocation::Value)],
        ) -> Vec<(&str, types::ValueParam<'_>)> {
            use allot_allocation::Value;
            let lend = |value| match value {
                &Value::Flag(v) => types::ValueParam::Flag(v),
                &Value::Integer(v) => types::ValueParam::Integer(v),
                &Value::Number(v) => types::ValueParam::Number(v),
                Value::Text(v) => types::ValueParam::Text(v),
            };
            settings.iter().map(|(name, value)| (name.as_str(), lend(value))).collect()
        }

        fn settings(described: Vec<types::Setting>) -> Vec<crate::Setting> {
            use allot_allocation::Value;
            let default = |value| match value {
                types::ValueResult::Flag(v) => Value::Flag(v),
                types::ValueResult::Integer(v) => Value::Integer(v),
                types::ValueResult::Number(v) => Value::Number(v),
                types::ValueResult::Text(v) => Value::Text(v),
            };
            let setting = |types::Setting { name, default: value, summary }| crate::Setting {
                name,
                default: default(value),
                summary,
            };
            described.into_iter().map(setting).collect()
        }

        fn bad_setting(bad: types::BadSetting) -> crate::fault::Refusal {
            crate::fault::Refusal::setting(&bad.name, &bad.reason)
        }
    };
}

/// A policy adapter, built from the functions `description`, `with_run`, `decide` and `plan` in scope.
macro_rules! policies {
    () => {
        /// Fits a component to the contract.
        pub(crate) fn link(
            linker: &mut wasmtime::component::Linker<GuestState>,
            component: &wasmtime::component::Component,
        ) -> wasmtime::Result<crate::calls::Linked> {
            Policy::add_to_linker::<_, wasmtime::component::HasSelf<_>>(linker, |guest| guest)?;
            let pre = linker.instantiate_pre(component).and_then(PolicyPre::new)?;
            Ok(Box::new(move |store| Ok(Box::new(pre.instantiate(store)?))))
        }

        impl crate::calls::Guest for Policy {
            fn describe(&self, store: &mut Store<GuestState>) -> wasmtime::Result<Description> {
                Ok(description(self.rollout_allocation_allocator().call_describe(store)?))
            }

            fn begin(&self, store: &mut Store<GuestState>, run: &ours::Run) -> Answer<Vec<u8>> {
                let state = with_run(run, |run| self.rollout_allocation_allocator().call_begin(store, run))?;
                Ok(state.map_err(refusal))
            }

            fn decide(
                &self,
                store: &mut Store<GuestState>,
                run: &ours::Run,
                state: &[u8],
                view: &ours::View,
            ) -> Answer<ours::Plan> {
                decide(self, store, run, state, view)
            }
        }

        fn refusal(error: types::Error) -> crate::fault::Refusal {
            use crate::fault::Refusal;
            match error {
                types::Error::Setting(bad) => bad_setting(bad),
                types::Error::State(reason) => Refusal::state(&reason),
                types::Error::Other(reason) => Refusal::other(&reason),
            }
        }

        fn ids(ids: Vec<u32>) -> Vec<PromptId> {
            ids.into_iter().map(PromptId).collect()
        }
    };
}

pub(crate) use {conversions, policies};
