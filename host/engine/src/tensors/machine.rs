//! The [`Machine`] that kernels run on: memory addresses, launches, products. One is a GPU
//! (`cuda.rs`); tests have another, which runs the same kernels on the CPU (`emulated.rs`).
//!
//! All work runs in the order of the calls; only [`Machine::read`] waits for it.

use std::any::Any;
use std::sync::Arc;

use candle_core::{DType, Result, Tensor};

use crate::model::Shape;

/// The sources of all kernels, in the order in which they are concatenated.
pub const SOURCES: [&str; 13] = [
    include_str!("kernels/number.cu"),
    include_str!("kernels/stream.cu"),
    include_str!("kernels/rope_qkv.cu"),
    include_str!("kernels/attend.cu"),
    include_str!("kernels/lanes.cu"),
    include_str!("kernels/tiles.cu"),
    include_str!("kernels/draw.cu"),
    include_str!("kernels/back.cu"),
    include_str!("kernels/heads.cu"),
    include_str!("kernels/softmax.cu"),
    include_str!("kernels/flash.cu"),
    include_str!("kernels/logprob_entropy.cu"),
    include_str!("kernels/adamw.cu"),
];

/// Names of the kernels: for sampling, for both (`rms_norm` and `swiglu`), for scoring and learning.
pub const KERNELS: [&str; 25] = [
    "embed",
    "rope_qkv",
    "attend",
    "join",
    "draw",
    "rms_norm",
    "swiglu",
    "add",
    "norm_back",
    "swiglu_back",
    "columns",
    "totals",
    "embed_back",
    "spread",
    "gather",
    "softmax",
    "softmax_back",
    "flash",
    "flash_slopes",
    "flash_keys",
    "flash_queries",
    "logprob_entropy",
    "dlogits",
    "adamw",
    "squares",
];

/// Maximum number of query heads for one block of `attend`: more would not fit into its registers.
const MOST_SHARED: usize = 8;

/// Settings that kernels are compiled for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct KernelConfig {
    /// Whether numbers are bfloat16; else they are float32.
    pub bf16: bool,
    /// Width of a head.
    pub head: usize,
    /// Query heads.
    pub heads: usize,
    /// Key and value heads.
    pub kv_heads: usize,
}

/// Memory on a machine, freed with the last of its clones.
#[derive(Clone)]
pub struct DeviceBuffer {
    /// Its start address.
    pub at: u64,
    _held: Arc<dyn Any + Send + Sync>,
}

/// An argument of a kernel.
#[derive(Clone, Copy, Debug)]
pub enum Arg {
    /// An address, or 0 for none.
    Address(u64),
    Count(i32),
    Number(f32),
}

/// A kernel launch.
#[derive(Clone, Copy, Debug)]
pub struct Launch<'a> {
    pub kernel: &'static str,
    /// Blocks in three dimensions.
    pub blocks: [usize; 3],
    /// Threads of a block, a multiple of 32.
    pub threads: usize,
    /// Shared memory of a block, besides the kernel's own, in bytes.
    pub shared: usize,
    pub args: &'a [Arg],
}

/// `y = x · wᵀ`: `[rows, outer]` from `[rows, inner]` and `[outer, inner]`, in the machine's
/// number format, with sums in float32.
#[derive(Clone, Copy, Debug)]
pub struct Product {
    /// The address of the matrix.
    pub w: u64,
    pub x: u64,
    /// The address of the result.
    pub y: u64,
    /// Rows of `x` and `y`.
    pub rows: usize,
    /// Columns of `x`.
    pub inner: usize,
    /// Columns of `y`.
    pub outer: usize,
}

/// A matrix of a product, in the machine's number format.
#[derive(Clone, Copy, Debug)]
pub struct Factor<'a> {
    /// The matrix, `[M, N]`.
    pub matrix: &'a Tensor,
    /// Whether it is transposed, as `[N, M]`.
    pub across: bool,
}

/// Runs kernels that are compiled for one [`KernelConfig`].
pub trait Machine: Send + Sync {
    /// Returns the approximate number of blocks that run in parallel.
    fn width(&self) -> usize;

    /// Allocates memory.
    fn buffer(&self, bytes: usize) -> Result<DeviceBuffer>;

    /// Returns the memory of a contiguous tensor, for reading; its numbers stay in place.
    fn lend(&self, tensor: &Tensor) -> Result<DeviceBuffer>;

    /// Returns a tensor whose numbers are not written yet.
    fn fresh(&self, dims: &[usize], numbers: DType) -> Result<Tensor>;

    /// Passes tensors to launches that write them in place.
    fn rework(
        &self,
        tensors: &[&Tensor],
        launches: &mut dyn FnMut(&[DeviceBuffer]) -> Result<()>,
    ) -> Result<()>;

    /// Writes `bytes` to the start of a buffer.
    fn write(&self, buffer: &DeviceBuffer, bytes: &[u8]) -> Result<()>;

    /// Reads the first bytes of a buffer, once all earlier work is done.
    fn read(&self, buffer: &DeviceBuffer, bytes: usize) -> Result<Vec<u8>>;

    /// Runs a kernel.
    fn launch(&self, launch: Launch<'_>) -> Result<()>;

    /// Multiplies matrices given by their addresses.
    fn product(&self, product: Product) -> Result<()>;

    /// Computes `made = a · b`, or `made += a · b` with `add`, with sums in float32. `made` is in
    /// the machine's number format or in float32.
    fn multiply(&self, made: &Tensor, a: Factor<'_>, b: Factor<'_>, add: bool) -> Result<()>;
}

/// A machine that can record work.
pub trait Recorder: Machine {
    /// The work between [`Recorder::record`] and [`Recorder::recorded`], which can be replayed.
    type Recording;

    /// Starts recording: launches and products are recorded, not run. Returns `false` if this
    /// machine cannot record.
    fn record(&self) -> Result<bool>;

    /// Ends recording.
    fn recorded(&self) -> Result<Self::Recording>;

    /// Runs recorded work.
    fn replay(&self, recording: &Self::Recording) -> Result<()>;
}

impl KernelConfig {
    /// Returns the settings for a model of this shape, or a reason why kernels cannot compute it.
    pub fn of(shape: &Shape, numbers: DType) -> std::result::Result<Self, String> {
        shape.has_kernels()?;
        let uneven =
            |what: &str, n: usize| format!("its kernels want {what} in multiples of 8, and it is {n}");
        let widths =
            [("a width", shape.hidden), ("a feed-forward width", shape.intermediate), ("heads", shape.head)];
        if let Some((what, n)) = widths.into_iter().find(|(_, n)| !n.is_multiple_of(8)) {
            return Err(uneven(what, n));
        }
        if shape.head > 256 {
            return Err(format!(
                "its kernels have heads of at most 256 numbers, and the model {}",
                shape.head
            ));
        }
        // Each 256 tokens take 16 bytes of a block's shared memory.
        if shape.vocabulary > 1 << 19 {
            return Err(format!(
                "its kernels draw from at most 524,288 tokens; here are {}",
                shape.vocabulary
            ));
        }
        let bf16 = numbers == DType::BF16;
        Ok(Self { bf16, head: shape.head, heads: shape.heads, kv_heads: shape.kv_heads })
    }

    /// Returns the number of query heads for one block of `attend`.
    pub fn share(&self) -> usize {
        let group = self.heads / self.kv_heads;
        (1..=MOST_SHARED.min(group)).rev().find(|n| group.is_multiple_of(*n)).unwrap_or(1)
    }

    /// Whether `flash.cu` computes attention of whole sequences; else `softmax.cu` does.
    pub fn flash(&self) -> bool {
        super::memory::flash(self.bf16, self.head)
    }

    /// Bytes of shared memory of a block of one of the kernels of `flash.cu`: one or two tiles of its 64 rows, and four
    /// of 64 columns; `flash_keys` has 32 where heads have 128 numbers. 0 for other kernels, and where `softmax.cu`
    /// computes attention.
    pub fn flash_shared(&self, kernel: &str) -> usize {
        let rows = match kernel {
            _ if !self.flash() => 0,
            "flash" => 64 + 4 * 64,
            "flash_keys" if self.head == 128 => 2 * 64 + 4 * 32,
            "flash_keys" | "flash_queries" => 2 * 64 + 4 * 64,
            _ => 0,
        };
        rows * self.head * self.size()
    }

    pub fn size(&self) -> usize {
        if self.bf16 { 2 } else { 4 }
    }

    /// Returns the compiler definitions.
    pub fn definitions(&self) -> [String; 5] {
        let set = |name: &str, n: usize| format!("-D{name}={n}");
        [
            set("BF16", usize::from(self.bf16)),
            set("HEAD", self.head),
            set("HEADS", self.heads),
            set("KV_HEADS", self.kv_heads),
            set("SHARE", self.share()),
        ]
    }
}

impl<'a> Factor<'a> {
    pub fn of(matrix: &'a Tensor) -> Self {
        Self { matrix, across: false }
    }

    /// A transposed matrix.
    pub fn across(matrix: &'a Tensor) -> Self {
        Self { matrix, across: true }
    }

    /// Returns its rows and columns after transposition.
    pub fn dims(&self) -> Result<(usize, usize)> {
        let (rows, columns) = self.matrix.dims2()?;
        Ok(if self.across { (columns, rows) } else { (rows, columns) })
    }
}

impl DeviceBuffer {
    /// Memory from an address on, valid while `held` exists.
    pub fn new(at: u64, held: impl Any + Send + Sync) -> Self {
        Self { at, _held: Arc::new(held) }
    }
}

impl From<&DeviceBuffer> for Arg {
    fn from(buffer: &DeviceBuffer) -> Self {
        Self::Address(buffer.at)
    }
}

impl From<Option<&DeviceBuffer>> for Arg {
    fn from(buffer: Option<&DeviceBuffer>) -> Self {
        Self::Address(buffer.map_or(0, |buffer| buffer.at))
    }
}

impl From<usize> for Arg {
    fn from(count: usize) -> Self {
        Self::Count(count as i32)
    }
}

impl From<f64> for Arg {
    fn from(number: f64) -> Self {
        Self::Number(number as f32)
    }
}

impl From<f32> for Arg {
    fn from(number: f32) -> Self {
        Self::Number(number)
    }
}
