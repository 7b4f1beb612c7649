//! A [`Machine`] without a GPU, for tests: a process that runs the very source of the kernels on the CPU
//! (`emulated/machine.cpp`). It is compiled by the C++ compiler of this machine; where there is none, tests
//! say so loudly and hold nothing.

use std::cell::RefCell;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::io::{BufWriter, Read as _, Write as _};
use std::path::PathBuf;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::rc::Rc;
use std::sync::{Mutex, PoisonError};

use candle_core::{DType, Error, Result, Tensor, bail};

use super::machine::{Arg, Kind, Launch, Machine, Product, Room, SOURCES};

/// What the kernels are compiled around.
const MACHINE: &str = include_str!("emulated/machine.cpp");

/// A process that runs kernels.
pub struct Emulated {
    line: Rc<RefCell<Line>>,
    width: usize,
    /// What is being written down.
    script: Option<Vec<u8>>,
}

/// The way to it and back. It ends when its input does.
struct Line {
    to: BufWriter<ChildStdin>,
    from: ChildStdout,
    _child: Reaped,
}

struct Reaped(Child);

/// Memory that is given back when nobody has it any more.
struct Held(Rc<RefCell<Line>>, u64);

impl Emulated {
    /// A machine of so many blocks side by side; `None`, and a word about it, where there is no C++ compiler.
    pub fn new(kind: Kind, width: usize) -> Result<Option<Self>> {
        let Some(program) = program(kind)? else { return Ok(None) };
        let mut child = Command::new(program)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .map_err(Error::wrap)?;
        let (Some(to), Some(from)) = (child.stdin.take(), child.stdout.take()) else { bail!("no pipes") };
        let line = Line { to: BufWriter::new(to), from, _child: Reaped(child) };
        Ok(Some(Self { line: Rc::new(RefCell::new(line)), width, script: None }))
    }

    /// Says something, now or when it is replayed.
    fn say(&mut self, words: &[u8]) -> Result<()> {
        match &mut self.script {
            Some(script) => {
                script.extend_from_slice(words);
                Ok(())
            }
            None => self.line.borrow_mut().say(words),
        }
    }
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
        // Its input is closed by now.
        let _ = self.0.wait();
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        let _ = self.0.borrow_mut().say(&[b"f".as_slice(), &self.1.to_le_bytes()].concat());
    }
}

impl Machine for Emulated {
    type Recording = Vec<u8>;

    fn width(&self) -> usize {
        self.width
    }

    fn room(&mut self, bytes: usize) -> Result<Room> {
        let mut line = self.line.borrow_mut();
        line.say(&[b"r".as_slice(), &(bytes as u64).to_le_bytes()].concat())?;
        let at = line.hear(8)?.try_into().map_or(0, u64::from_le_bytes);
        Ok(Room::new(at, Held(Rc::clone(&self.line), at)))
    }

    fn lend(&mut self, tensor: &Tensor) -> Result<Room> {
        if !tensor.is_contiguous() {
            bail!("a tensor that is not contiguous has no address of its own");
        }
        let numbers = tensor.to_dtype(DType::F32)?.flatten_all()?.to_vec1::<f32>()?;
        let bytes: Vec<u8> = match tensor.dtype() {
            DType::F32 => numbers.iter().flat_map(|x| x.to_le_bytes()).collect(),
            // Its upper half is all that there is.
            DType::BF16 => numbers.iter().flat_map(|x| ((x.to_bits() >> 16) as u16).to_le_bytes()).collect(),
            other => bail!("kernels read no tensor of {other:?}"),
        };
        let room = self.room(bytes.len())?;
        self.write(&room, &bytes)?;
        Ok(room)
    }

    fn write(&mut self, room: &Room, bytes: &[u8]) -> Result<()> {
        let head = [b"w".as_slice(), &room.at.to_le_bytes(), &(bytes.len() as u64).to_le_bytes()].concat();
        let mut line = self.line.borrow_mut();
        line.say(&head)?;
        line.say(bytes)
    }

    fn read(&mut self, room: &Room, bytes: usize) -> Result<Vec<u8>> {
        let head = [b"g".as_slice(), &room.at.to_le_bytes(), &(bytes as u64).to_le_bytes()].concat();
        let mut line = self.line.borrow_mut();
        line.say(&head)?;
        line.hear(bytes)
    }

    fn launch(&mut self, launch: Launch<'_>) -> Result<()> {
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

    fn product(&mut self, p: Product) -> Result<()> {
        let mut words = vec![b'p'];
        words.extend([p.w, p.x, p.y].iter().flat_map(|address| address.to_le_bytes()));
        words.extend([p.rows, p.inner, p.outer].iter().flat_map(|n| (*n as u32).to_le_bytes()));
        self.say(&words)
    }

    fn record(&mut self) -> Result<bool> {
        self.script = Some(Vec::new());
        Ok(true)
    }

    fn recorded(&mut self) -> Result<Vec<u8>> {
        Ok(self.script.take().unwrap_or_default())
    }

    fn replay(&mut self, recording: &Vec<u8>) -> Result<()> {
        self.line.borrow_mut().say(recording)
    }
}

/// The program for a kind of model. It lies beside the tests, by a name that tells what it was made of, and
/// is made where it is not there yet.
#[allow(clippy::print_stderr)]
fn program(kind: Kind) -> Result<Option<PathBuf>> {
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
        eprintln!("SKIPPED: there is no C++ compiler (CXX) to run the kernels with");
        return Ok(None);
    }
    std::fs::create_dir_all(&folder).map_err(Error::wrap)?;
    std::fs::write(folder.join("kernels.cu"), kernels).map_err(Error::wrap)?;
    std::fs::write(folder.join("machine.cpp"), MACHINE).map_err(Error::wrap)?;
    // No sums of products in one rounding, so that the same numbers come out on every processor.
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
