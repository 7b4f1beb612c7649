//! A [`Machine`] without a GPU, for tests: a process that runs the kernels' own source on the
//! CPU (`emulated/machine.cpp`). It needs this machine's C++ compiler; without one, tests
//! report a skip and check nothing.

use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::io::{BufWriter, Read as _, Write as _};
use std::path::PathBuf;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use candle_core::{DType, Device, Error, Result, Tensor, bail};

use super::machine::{Arg, DeviceBuffer, Factor, KernelConfig, Launch, Machine, Product, Recorder, SOURCES};
use crate::skip::skip;

/// The program that the kernels are compiled into.
const MACHINE: &str = include_str!("emulated/machine.cpp");

/// A process that runs kernels.
pub struct Emulated {
    line: Arc<Mutex<Line>>,
    width: usize,
    /// The recording in progress.
    script: Mutex<Option<Vec<u8>>>,
}

/// Pipes to the process and back. The process ends when its input is closed.
struct Line {
    to: BufWriter<ChildStdin>,
    from: ChildStdout,
    _child: Reaped,
}

struct Reaped(Child);

/// Memory that is freed with its last owner.
struct Held(Arc<Mutex<Line>>, u64);

impl Emulated {
    /// Returns a machine with `width` parallel blocks; `None`, with a notice, if there is no C++ compiler.
    pub fn new(kind: KernelConfig, width: usize) -> Result<Option<Self>> {
        let Some(program) = program(kind)? else { return Ok(None) };
        let mut child = Command::new(program)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .map_err(Error::wrap)?;
        let (Some(to), Some(from)) = (child.stdin.take(), child.stdout.take()) else { bail!("no pipes") };
        let line = Line { to: BufWriter::new(to), from, _child: Reaped(child) };
        Ok(Some(Self { line: Arc::new(Mutex::new(line)), width, script: Mutex::new(None) }))
    }

    /// Sends a message, now or when it is replayed.
    fn say(&self, words: &[u8]) -> Result<()> {
        match &mut *held(&self.script) {
            Some(script) => {
                script.extend_from_slice(words);
                Ok(())
            }
            None => held(&self.line).say(words),
        }
    }
}

fn held<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Line {
    fn say(&mut self, words: &[u8]) -> Result<()> {
        self.to.write_all(words).map_err(Error::wrap)
    }

    fn hear(&mut self, bytes: usize) -> Result<Vec<u8>> {
        let mut heard = vec![0; bytes];
        self.to.flush().and_then(|()| self.from.read_exact(&mut heard)).map_err(Error::wrap)?;
        Ok(heard)
    }
}

impl Drop for Reaped {
    fn drop(&mut self) {
        // The process's input is closed by now.
        let _ = self.0.wait();
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        let _ = held(&self.0).say(&[b"f".as_slice(), &self.1.to_le_bytes()].concat());
    }
}

impl Machine for Emulated {
    fn width(&self) -> usize {
        self.width
    }

    fn buffer(&self, bytes: usize) -> Result<DeviceBuffer> {
        let mut line = held(&self.line);
        line.say(&[b"r".as_slice(), &(bytes as u64).to_le_bytes()].concat())?;
        let at = line.hear(8)?.try_into().map_or(0, u64::from_le_bytes);
        Ok(DeviceBuffer::new(at, Held(Arc::clone(&self.line), at)))
    }

    fn lend(&self, tensor: &Tensor) -> Result<DeviceBuffer> {
        if !tensor.is_contiguous() {
            bail!("a tensor that is not contiguous has no address of its own");
        }
        let flat = tensor.detach().flatten_all()?;
        let numbers = || flat.to_dtype(DType::F32)?.to_vec1::<f32>();
        let bytes: Vec<u8> = match tensor.dtype() {
            DType::F32 => numbers()?.iter().flat_map(|x| x.to_le_bytes()).collect(),
            // The upper half has all of its bits.
            DType::BF16 => {
                numbers()?.iter().flat_map(|x| ((x.to_bits() >> 16) as u16).to_le_bytes()).collect()
            }
            DType::U32 => flat.to_vec1::<u32>()?.iter().flat_map(|x| x.to_le_bytes()).collect(),
            other => bail!("kernels read no tensor of {other:?}"),
        };
        let buffer = self.buffer(bytes.len())?;
        self.write(&buffer, &bytes)?;
        Ok(buffer)
    }

    /// Filled with NaN, so that tests notice anything that a kernel forgets to write.
    fn fresh(&self, dims: &[usize], numbers: DType) -> Result<Tensor> {
        Tensor::full(f32::NAN, dims, &Device::Cpu)?.to_dtype(numbers)
    }

    fn rework(
        &self,
        tensors: &[&Tensor],
        launches: &mut dyn FnMut(&[DeviceBuffer]) -> Result<()>,
    ) -> Result<()> {
        let buffers = tensors.iter().map(|tensor| self.lend(tensor)).collect::<Result<Vec<_>>>()?;
        launches(&buffers)?;
        for (tensor, buffer) in tensors.iter().zip(&buffers) {
            let size = tensor.dtype().size_in_bytes();
            let read = self.read(buffer, tensor.elem_count() * size)?;
            let bits = |b: &[u8]| b.iter().rev().fold(0, |bits, b| bits << 8 | u32::from(*b));
            let number = |b: &[u8]| f32::from_bits(bits(b) << (32 - 8 * size));
            let numbers: Vec<f32> = read.chunks_exact(size).map(number).collect();
            let new = Tensor::from_vec(numbers, tensor.dims(), &Device::Cpu)?.to_dtype(tensor.dtype())?;
            tensor.slice_set(&new, 0, 0)?;
        }
        Ok(())
    }

    fn write(&self, buffer: &DeviceBuffer, bytes: &[u8]) -> Result<()> {
        let head = [b"w".as_slice(), &buffer.at.to_le_bytes(), &(bytes.len() as u64).to_le_bytes()].concat();
        let mut line = held(&self.line);
        line.say(&head)?;
        line.say(bytes)
    }

    fn read(&self, buffer: &DeviceBuffer, bytes: usize) -> Result<Vec<u8>> {
        let head = [b"g".as_slice(), &buffer.at.to_le_bytes(), &(bytes as u64).to_le_bytes()].concat();
        let mut line = held(&self.line);
        line.say(&head)?;
        line.hear(bytes)
    }

    fn launch(&self, launch: Launch<'_>) -> Result<()> {
        let mut words = vec![b'l'];
        words.extend((launch.kernel.len() as u32).to_le_bytes());
        words.extend(launch.kernel.as_bytes());
        let [x, y, z] = launch.blocks;
        for count in [x, y, z, launch.threads, launch.shared, launch.args.len()] {
            words.extend((count as u32).to_le_bytes());
        }
        for arg in launch.args {
            words.extend(match arg {
                Arg::Address(address) => address.to_le_bytes(),
                Arg::Count(count) => u64::from(*count as u32).to_le_bytes(),
                Arg::Number(number) => u64::from(number.to_bits()).to_le_bytes(),
            });
        }
        self.say(&words)
    }

    fn product(&self, p: Product) -> Result<()> {
        let mut words = vec![b'p'];
        words.extend([p.w, p.x, p.y].iter().flat_map(|address| address.to_le_bytes()));
        words.extend([p.rows, p.inner, p.outer].iter().flat_map(|n| (*n as u32).to_le_bytes()));
        self.say(&words)
    }

    /// Uses candle's product: it contains no kernel of this crate.
    fn multiply(&self, made: &Tensor, a: Factor<'_>, b: Factor<'_>, add: bool) -> Result<()> {
        let ((rows, inner), (same, columns)) = (a.dims()?, b.dims()?);
        if inner != same || made.dims2()? != (rows, columns) {
            bail!("[{rows}, {inner}] by [{same}, {columns}] is not {:?}", made.dims());
        }
        let wide = |factor: Factor<'_>| {
            let matrix = factor.matrix.detach().to_dtype(DType::F32)?;
            if factor.across { matrix.t()?.contiguous() } else { Ok(matrix) }
        };
        let mut product = wide(a)?.matmul(&wide(b)?)?;
        if add {
            product = (product + made.to_dtype(DType::F32)?)?;
        }
        made.slice_set(&product.to_dtype(made.dtype())?, 0, 0)
    }
}

impl Recorder for Emulated {
    type Recording = Vec<u8>;

    fn record(&self) -> Result<bool> {
        *held(&self.script) = Some(Vec::new());
        Ok(true)
    }

    fn recorded(&self) -> Result<Vec<u8>> {
        Ok(held(&self.script).take().unwrap_or_default())
    }

    fn replay(&self, recording: &Vec<u8>) -> Result<()> {
        held(&self.line).say(recording)
    }
}

/// Returns the program for a kind of model, compiling it if it does not exist yet. It is stored
/// beside the tests, under a name with a hash of its inputs.
fn program(kind: KernelConfig) -> Result<Option<PathBuf>> {
    static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());
    let _turn = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
    let kernels = SOURCES.concat();
    let mut hash = DefaultHasher::new();
    (&kernels, MACHINE, kind.definitions()).hash(&mut hash);
    let tests = std::env::current_exe().map_err(Error::wrap)?;
    let folder = tests.with_file_name(format!("kernels-{:016x}", hash.finish()));
    let program = folder.join("machine");
    if program.is_file() {
        return Ok(Some(program));
    }

    let compiler = std::env::var_os("CXX").unwrap_or_else(|| "c++".into());
    if Command::new(&compiler).arg("--version").output().is_err() {
        skip("c++", "there is no C++ compiler (CXX) to run the kernels with");
        return Ok(None);
    }
    std::fs::create_dir_all(&folder).map_err(Error::wrap)?;
    std::fs::write(folder.join("kernels.cu"), kernels).map_err(Error::wrap)?;
    std::fs::write(folder.join("machine.cpp"), MACHINE).map_err(Error::wrap)?;
    // No fused multiply-adds, so that results are the same on every processor.
    let flags = ["-std=c++17", "-O2", "-fno-strict-aliasing", "-ffp-contract=off", "-w", "-U_FORTIFY_SOURCE"];
    let aside = folder.join(format!("machine-{}", std::process::id()));
    let mut command = Command::new(&compiler);
    command
        .args(flags)
        .args(kind.definitions())
        .arg("-o")
        .arg(&aside)
        .arg("machine.cpp")
        .current_dir(&folder);
    let made = command.output().map_err(Error::wrap)?;
    if !made.status.success() {
        bail!("the kernels for {kind:?}: {}", String::from_utf8_lossy(&made.stderr));
    }
    std::fs::rename(aside, &program).map_err(Error::wrap)?;
    Ok(Some(program))
}
