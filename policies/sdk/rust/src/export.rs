//! The step from a Rust type to a component's exports.

/// Exports a [`Policy`](crate::Policy) as the component's `allocator`. Does nothing where the
/// crate is compiled for the machine at hand.
#[macro_export]
macro_rules! export {
    ($policy:ty) => {
        #[cfg(target_arch = "wasm32")]
        #[allow(unsafe_code, unused_qualifications)]
        const _: () = {
            use $crate::types::{Description, Error, Plan, Run, View};

            struct Component;

            impl $crate::bindings::exports::rollout::allocation::allocator::Guest for Component {
                fn describe() -> Description {
                    $crate::shout_panics();
                    $crate::describe::<$policy>()
                }

                fn begin(run: Run) -> Result<Vec<u8>, Error> {
                    $crate::shout_panics();
                    $crate::begin::<$policy>(&run)
                }

                fn decide(run: Run, state: Vec<u8>, view: View) -> Result<Plan, Error> {
                    $crate::shout_panics();
                    $crate::decide::<$policy>(&run, &state, &view)
                }
            }

    $crate::bindings::export_component!(Component with_types_in $crate::bindings);
        };
    };
}

/// Sends a panic's message, with its file and line, to the host's log before the trap: without it
/// the author would see a bare `unreachable`.
#[doc(hidden)]
pub fn shout_panics() {
    #[cfg(target_arch = "wasm32")]
    std::panic::set_hook(Box::new(|panic| crate::log::write(crate::log::Level::Error, &panic.to_string())));
}
