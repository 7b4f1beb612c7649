//! An NVIDIA GPU as a [`Machine`]: kernels compiled at run time by NVRTC and launched on
//! candle's stream, products by cuBLAS, and a step's launches recorded as a CUDA graph.
//!
//! All work goes to the one stream that candle uses too, so it runs in the order of the calls. Addresses
//! are plain numbers here. [`DeviceBuffer`]s keep the memory behind them, and no two of them overlap.

// The only unsafe memory access of the engine. Why it is sound: each kernel gets buffers of at least the
// sizes in its comment (`fused.rs` and `kernels.rs` make both, and `emulated.rs` runs the same launches
// with an unreadable page behind each buffer). Buffers outlive the launches, because dropping one frees
// its memory on the same stream. Host memory is copied before a call returns, or the call waits.
#![allow(unsafe_code)]

use std::collections::HashMap;
use std::sync::{Arc, Mutex, OnceLock};

use candle_core::cuda_backend::cudarc::cublas::{self, CudaBlas};
use candle_core::cuda_backend::cudarc::driver::sys::{
    self, CUdevice_attribute, CUfunction_attribute, CUgraphInstantiate_flags, CUstreamCaptureMode,
};
use candle_core::cuda_backend::cudarc::driver::{
    CudaFunction, CudaGraph, CudaStream, DevicePtr as _, DriverError, LaunchConfig, PushKernelArg as _,
    result,
};
use candle_core::cuda_backend::cudarc::nvrtc::{CompileError, CompileOptions, compile_ptx_with_opts};
use candle_core::cuda_backend::{CudaStorageSlice, WrapErr as _};
use candle_core::{CudaDevice, DType, Device, Result, Storage, Tensor, bail};

use super::machine::{
    Arg, DeviceBuffer, Factor, KERNELS, KernelConfig, Launch, Machine, Product, Recorder, SOURCES,
};

/// Size of cuBLAS's workspace in bytes: NVIDIA's recommendation for Hopper. Its own would be
/// allocated again inside a graph.
const WORKSPACE: usize = 32 << 20;

/// A GPU, with kernels for one kind of model.
pub struct Cuda {
    device: Device,
    stream: Arc<CudaStream>,
    blas: CudaBlas,
    kernels: HashMap<&'static str, CudaFunction>,
    bf16: bool,
    width: usize,
    graphs: bool,
    _workspace: DeviceBuffer,
}

impl Cuda {
    /// Compiles the kernels, once per process for each kind of model. `graphs` says whether
    /// launches are recorded.
    pub fn new(device: &Device, kind: KernelConfig, graphs: bool) -> Result<Self> {
        let cuda = device.as_cuda_device()?;
        let stream = cuda.cuda_stream();
        let context = stream.context();
        let (major, minor) = context.compute_capability().w()?;
        let ptx = compile(kind, major * 10 + minor)?;
        let module = format!("allot {kind:?}");
        let kernel = |name: &'static str| {
            let kernel = cuda.get_or_load_custom_func(name, &module, &ptx)?.into_cuda_function();
            let shared = kind.flash_shared(name);
            if shared > 0 {
                // More than a launch may have without being asked for.
                let most = CUfunction_attribute::CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES;
                kernel.set_attribute(most, shared as i32).w()?;
            }
            Ok((name, kernel))
        };
        let kernels = KERNELS.into_iter().map(kernel).collect::<Result<_>>()?;
        let sms = context.attribute(CUdevice_attribute::CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT).w()?;

        let workspace = buffer(device, WORKSPACE)?;
        // A separate handle: candle's outlives this workspace.
        let blas = CudaBlas::new(Arc::clone(&stream)).w()?;
        // SAFETY: the workspace outlives `blas`, which is dropped before it.
        unsafe { cublas::sys::cublasSetWorkspace_v2(*blas.handle(), workspace.at as *mut _, WORKSPACE) }
            .result()
            .w()?;
        Ok(Self {
            device: device.clone(),
            stream,
            blas,
            kernels,
            bf16: kind.bf16,
            width: sms as usize,
            graphs,
            _workspace: workspace,
        })
    }
}

impl Machine for Cuda {
    fn width(&self) -> usize {
        self.width
    }

    fn buffer(&self, bytes: usize) -> Result<DeviceBuffer> {
        buffer(&self.device, bytes)
    }

    fn lend(&self, tensor: &Tensor) -> Result<DeviceBuffer> {
        lend(tensor, &self.stream)
    }

    fn fresh(&self, dims: &[usize], numbers: DType) -> Result<Tensor> {
        // SAFETY: any bits are valid numbers, and kernels write them before they are read.
        unsafe { Tensor::empty(dims, numbers, &self.device) }
    }

    fn rework(
        &self,
        tensors: &[&Tensor],
        launches: &mut dyn FnMut(&[DeviceBuffer]) -> Result<()>,
    ) -> Result<()> {
        launches(&tensors.iter().map(|tensor| self.lend(tensor)).collect::<Result<Vec<_>>>()?)
    }

    fn write(&self, buffer: &DeviceBuffer, bytes: &[u8]) -> Result<()> {
        if bytes.is_empty() {
            return Ok(());
        }
        self.stream.context().bind_to_thread().w()?;
        // SAFETY: the caller made the buffer at least as large. Host memory that is not pinned is
        // copied before the call returns.
        unsafe { result::memcpy_htod_async(buffer.at, bytes, self.stream.cu_stream()) }.w()
    }

    fn read(&self, buffer: &DeviceBuffer, bytes: usize) -> Result<Vec<u8>> {
        let mut read = vec![0; bytes];
        self.stream.context().bind_to_thread().w()?;
        // SAFETY: the buffer is at least as large, and `read` is not touched before the stream is done.
        unsafe { result::memcpy_dtoh_async(&mut read, buffer.at, self.stream.cu_stream()) }.w()?;
        self.stream.synchronize().w()?;
        Ok(read)
    }

    fn launch(&self, launch: Launch<'_>) -> Result<()> {
        let Some(kernel) = self.kernels.get(launch.kernel) else { bail!("no kernel `{}`", launch.kernel) };
        let mut builder = self.stream.launch_builder(kernel);
        for arg in launch.args {
            match arg {
                Arg::Address(address) => builder.arg(address),
                Arg::Count(count) => builder.arg(count),
                Arg::Number(number) => builder.arg(number),
            };
        }
        let [x, y, z] = launch.blocks.map(|n| n as u32);
        let config = LaunchConfig {
            grid_dim: (x, y, z),
            block_dim: (launch.threads as u32, 1, 1),
            shared_mem_bytes: launch.shared as u32,
        };
        // SAFETY: `fused.rs` and `kernels.rs` give each kernel the arguments of its signature and
        // buffers of the required sizes; the tests on the CPU check both.
        unsafe { builder.launch(config) }.w()?;
        Ok(())
    }

    fn product(&self, p: Product) -> Result<()> {
        let [x, w] = [(p.x, false, p.inner), (p.w, true, p.inner)];
        self.gemm((p.y, self.bf16, false), x, w, (p.rows, p.inner, p.outer))
    }

    fn multiply(&self, made: &Tensor, a: Factor<'_>, b: Factor<'_>, add: bool) -> Result<()> {
        let ((rows, inner), (_, outer)) = (a.dims()?, b.dims()?);
        let [y, x, w] = [made, a.matrix, b.matrix].map(|tensor| self.lend(tensor));
        let (y, x, w) = (y?, x?, w?);
        let (left, right) = ((x.at, a.across, a.matrix.dim(1)?), (w.at, b.across, b.matrix.dim(1)?));
        self.gemm((y.at, made.dtype() == DType::BF16, add), left, right, (rows, inner, outer))
    }
}

/// A matrix for cuBLAS: its address, whether it is transposed, and its columns as stored.
type Stored = (u64, bool, usize);

impl Cuda {
    /// Computes `y = a · b`, `[M, K]` by `[K, N]`. `y` is an address, whether in bfloat16, and
    /// whether to add.
    fn gemm(
        &self,
        (y, rounded, add): (u64, bool, bool),
        a: Stored,
        b: Stored,
        (m, k, n): (usize, usize, usize),
    ) -> Result<()> {
        use cublas::sys::{cublasComputeType_t, cublasGemmAlgo_t, cublasOperation_t, cudaDataType_t};
        let number = |rounded| if rounded { cudaDataType_t::CUDA_R_16BF } else { cudaDataType_t::CUDA_R_32F };
        let (alpha, beta) = (1.0_f32, if add { 1.0_f32 } else { 0.0 });
        let turned =
            |across| if across { cublasOperation_t::CUBLAS_OP_T } else { cublasOperation_t::CUBLAS_OP_N };
        // cuBLAS is column-major: there it is yᵀ = bᵀ · aᵀ, and rows as stored are already transposed.
        // SAFETY: the caller made the three buffers as large as the product requires.
        unsafe {
            cublas::result::gemm_ex(
                *self.blas.handle(),
                turned(b.1),
                turned(a.1),
                n as i32,
                m as i32,
                k as i32,
                (&raw const alpha).cast(),
                b.0 as *const _,
                number(self.bf16),
                b.2 as i32,
                a.0 as *const _,
                number(self.bf16),
                a.2 as i32,
                (&raw const beta).cast(),
                y as *mut _,
                number(rounded),
                n as i32,
                cublasComputeType_t::CUBLAS_COMPUTE_32F,
                cublasGemmAlgo_t::CUBLAS_GEMM_DEFAULT,
            )
        }
        .w()
    }
}

impl Recorder for Cuda {
    type Recording = CudaGraph;

    fn record(&self) -> Result<bool> {
        if self.graphs {
            self.stream.begin_capture(CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_THREAD_LOCAL).w()?;
        }
        Ok(self.graphs)
    }

    fn recorded(&self) -> Result<CudaGraph> {
        match self.stream.end_capture(CUgraphInstantiate_flags(0)).w()? {
            Some(graph) => Ok(graph),
            None => bail!("nothing was written down for a CUDA graph"),
        }
    }

    fn replay(&self, recording: &CudaGraph) -> Result<()> {
        recording.launch().w()
    }
}

/// Opens a device with one stream for all threads. candle's default is a stream per thread, but
/// several threads may call an engine.
pub fn open(number: usize) -> Result<Device> {
    let device = Device::new_cuda_with_stream(number)?;
    let cuda = device.as_cuda_device()?;
    // SAFETY: there is only one stream, so nothing is freed or read out of order.
    unsafe { cuda.disable_event_tracking() };
    keep_freed(number).w()?;
    Ok(device)
}

/// Keeps freed memory in this process. Otherwise it would return to the driver whenever the
/// host waits for the device, and allocating it again takes milliseconds.
fn keep_freed(number: usize) -> std::result::Result<(), DriverError> {
    let mut pool = std::ptr::null_mut();
    let mut most = u64::MAX;
    // SAFETY: libcuda is loaded, since there is a context; both calls only access their pointers' targets.
    unsafe {
        sys::cuDeviceGetDefaultMemPool(&raw mut pool, result::device::get(number as i32)?).result()?;
        let what = sys::CUmemPool_attribute_enum::CU_MEMPOOL_ATTR_RELEASE_THRESHOLD;
        sys::cuMemPoolSetAttribute(pool, what, (&raw mut most).cast()).result()
    }
}

/// Returns the kernels for a kind of model and a compute capability, as PTX.
fn compile(kind: KernelConfig, capability: i32) -> Result<Arc<str>> {
    type Compiled = Mutex<HashMap<(KernelConfig, i32), Arc<str>>>;
    static COMPILED: OnceLock<Compiled> = OnceLock::new();
    let compiled = COMPILED.get_or_init(Compiled::default);
    let mut compiled = compiled.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    if let Some(ptx) = compiled.get(&(kind, capability)) {
        return Ok(Arc::clone(ptx));
    }
    let mut options = vec![format!("--gpu-architecture=compute_{capability}"), "--std=c++17".to_owned()];
    options.extend(kind.definitions());
    let options = CompileOptions { options, ..CompileOptions::default() };
    let ptx: Arc<str> = match compile_ptx_with_opts(SOURCES.concat(), options) {
        Ok(ptx) => ptx.to_src().into(),
        Err(CompileError::CompileError { log, .. }) => bail!("the kernels: {}", log.to_string_lossy()),
        Err(error) => return Err(error).w(),
    };
    compiled.insert((kind, capability), Arc::clone(&ptx));
    Ok(ptx)
}

/// Allocates memory through candle, not the driver, so that both share freed memory.
fn buffer(device: &Device, bytes: usize) -> Result<DeviceBuffer> {
    let tensor = Tensor::zeros(bytes.max(1), DType::U8, device)?;
    let cuda: &CudaDevice = device.as_cuda_device()?;
    lend(&tensor, &cuda.cuda_stream())
}

/// Returns a tensor's address. Its numbers are on the same stream as everything that reads them here.
fn lend(tensor: &Tensor, stream: &CudaStream) -> Result<DeviceBuffer> {
    if !tensor.is_contiguous() {
        bail!("a tensor that is not contiguous has no address of its own");
    }
    let (storage, layout) = tensor.storage_and_layout();
    let Storage::Cuda(storage) = &*storage else { bail!("a tensor that is not on the GPU") };
    let at = match &storage.slice {
        CudaStorageSlice::U8(slice) => slice.device_ptr(stream).0,
        CudaStorageSlice::U32(slice) => slice.device_ptr(stream).0,
        CudaStorageSlice::BF16(slice) => slice.device_ptr(stream).0,
        CudaStorageSlice::F32(slice) => slice.device_ptr(stream).0,
        _ => bail!("kernels read no tensor of {:?}", tensor.dtype()),
    };
    let offset = layout.start_offset() * tensor.dtype().size_in_bytes();
    Ok(DeviceBuffer::new(at + offset as u64, tensor.clone()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::skip::skip;

    /// Uses NVRTC without a GPU, if `ALLOT_NVRTC` says that it is in `LD_LIBRARY_PATH`.
    #[test]
    fn nvrtc_compiles_the_kernels() {
        if std::env::var_os("ALLOT_NVRTC").is_none() {
            skip("nvrtc", "ALLOT_NVRTC is not set");
            return;
        }
        for (bf16, head, heads, kv_heads) in [
            (true, 64, 9, 3),
            (true, 64, 14, 2),
            (false, 128, 16, 8),
            (true, 128, 16, 8),
            (true, 128, 32, 1),
            (true, 80, 8, 8),
            (true, 256, 8, 1),
            (false, 256, 8, 8),
        ] {
            let kind = KernelConfig { bf16, head, heads, kv_heads };
            for capability in [80, 90] {
                let ptx = compile(kind, capability).map_err(|e| e.to_string());
                let whole = ptx.map(|ptx| KERNELS.iter().all(|k| ptx.contains(&format!(".entry {k}("))));
                assert_eq!(whole, Ok(true), "{kind:?}");
            }
        }
    }
}
