//! The device of a core: the CPU or an NVIDIA GPU.

pub use allot_settings::DeviceName;

use candle_core::Device;

use crate::model::ModelError;

/// Opens a device.
///
/// # Errors
///
/// Returns why the device cannot be used, in one sentence.
pub fn open(name: DeviceName) -> Result<Device, ModelError> {
    match name {
        DeviceName::Cpu => Ok(Device::Cpu),
        DeviceName::Cuda(number) => cuda(number).map_err(|(reason, hint)| {
            let device = name.to_string();
            ModelError::Device { device, reason, hint }
        }),
    }
}

/// A reason and a hint.
pub(crate) type Refusal = (String, &'static str);

#[cfg(not(feature = "cuda"))]
fn cuda(_: usize) -> Result<Device, Refusal> {
    Err(no_cuda())
}

/// Returns why there is no GPU, and a hint.
#[cfg(not(feature = "cuda"))]
pub(crate) fn no_cuda() -> Refusal {
    let reason = "this program was built without CUDA".to_owned();
    (reason, "build it with `--features cuda`, or set the device to \"cpu\"")
}

#[cfg(feature = "cuda")]
fn cuda(number: usize) -> Result<Device, Refusal> {
    quietly(|| super::cuda::open(number))
}

/// Runs work that may be the first to need one of CUDA's libraries.
///
/// Libraries that are loaded at run time may be missing, and then cudarc panics: libcuda, cuBLAS,
/// cuRAND or NVRTC. cudarc's check for libcuda, `is_culib_present`, does not exist in programs
/// linked with the libraries, which is candle's default. So the panic is caught here, without
/// output, before it can break anything.
#[cfg(feature = "cuda")]
pub fn quietly<T>(work: impl FnOnce() -> candle_core::Result<T>) -> Result<T, Refusal> {
    thread_local!(static QUIET: std::cell::Cell<bool> = const { std::cell::Cell::new(false) });
    static HOOK: std::sync::Once = std::sync::Once::new();
    // Panics of other threads are still reported.
    HOOK.call_once(|| {
        let told = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |panic| {
            if !QUIET.get() {
                told(panic);
            }
        }));
    });
    QUIET.set(true);
    // The error text also comes from the library.
    let work = std::panic::AssertUnwindSafe(|| work().map_err(|e| e.to_string()));
    let done = std::panic::catch_unwind(work);
    QUIET.set(false);
    let first = |words: &str| words.lines().next().unwrap_or_default().to_owned();
    match done {
        Ok(Ok(done)) => Ok(done),
        Ok(Err(words)) => Err((first(&words), "run `nvidia-smi`: it lists the devices that there are")),
        Err(panic) => {
            let words = panic.downcast_ref::<String>().map_or("", String::as_str);
            // `Unable to dynamically load the "cuda" shared library - searched for …`
            let reason = match words.split('"').nth(1) {
                Some(name) => format!("its library lib{name} is not on this machine, or can't be loaded"),
                None => format!("CUDA's libraries are not what they should be ({})", first(words)),
            };
            Err((reason, "add its folder to LD_LIBRARY_PATH, or set the device to \"cpu\""))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_device_has_one_name() {
        for name in ["cpu", "cuda", "cuda:3"] {
            assert_eq!(name.parse::<DeviceName>().map(|p| p.to_string()), Ok(name.to_owned()));
        }
        assert_eq!("cuda:0".parse(), Ok(DeviceName::Cuda(0)));
        for name in ["gpu", "cuda:", "cuda:x", "CPU", ""] {
            assert!(name.parse::<DeviceName>().is_err(), "{name}");
        }
    }

    #[test]
    #[cfg(not(feature = "cuda"))]
    fn without_the_feature_a_gpu_is_one_sentence_and_a_hint() {
        let error = open(DeviceName::Cuda(1)).err();
        let error =
            error.as_ref().map(|e| (e.to_string(), e.hint().is_some_and(|h| h.contains("--features"))));
        let sentence = "`cuda:1` can't be used: this program was built without CUDA".to_owned();
        assert_eq!(error, Some((sentence, true)));
    }
}
