//! The step from a Rust type to a component's exports.

/// Exports a [`Grader`](crate::Grader) or a [`GroupGrader`](crate::GroupGrader) as the component's `grader`. Does nothing where the crate is compiled for the
/// machine at hand.
#[macro_export]
macro_rules! export {
    ($grader:ty) => {
        #[cfg(target_arch = "wasm32")]
        #[allow(unsafe_code, unused_qualifications)]
        const _: () = {
            use $crate::types::{Description, Error, Question, Value, Verdict};

            std::thread_local! {
                static BEGUN: std::cell::RefCell<Option<$grader>> = const { std::cell::RefCell::new(None) };
            }

            struct Component;

            impl $crate::bindings::exports::rollout::reward::grader::Guest for Component {
                fn describe() -> Description {
                    $crate::shout_panics();
                    $crate::describe::<$grader>()
                }

                fn begin(settings: Vec<(String, Value)>) -> Result<(), Error> {
                    $crate::shout_panics();
                    let grader = $crate::given::<$grader>(&settings)?;
                    BEGUN.with_borrow_mut(|begun| *begun = Some(grader));
                    Ok(())
                }

                fn grade(questions: Vec<Question>) -> Vec<Verdict> {
                    BEGUN.with_borrow(|begun| {
                        let grader = begun.as_ref().expect("`begin` is called before `grade`");
                        $crate::GroupGrader::grade_group(grader, &questions)
                    })
                }
            }

    $crate::bindings::export_component!(Component with_types_in $crate::bindings);
        };
    };
}

/// Sends a panic's message, with its file and line, to the host before the trap: without it the author would see a bare
/// `unreachable`.
#[doc(hidden)]
pub fn shout_panics() {
    #[cfg(target_arch = "wasm32")]
    std::panic::set_hook(Box::new(|panic| crate::log::write(crate::log::Level::Error, &panic.to_string())));
}
