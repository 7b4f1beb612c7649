//! State: what a policy remembers between two calls, as bytes.
//!
//! Little-endian fields in order, after a four-byte mark of the struct's fields, so that bytes of
//! another version are refused and never misread.

/// What a policy remembers. Derive it on a struct of [`Field`]s:
///
/// ```
/// use allot_policy::State;
///
/// #[derive(Debug, Default, PartialEq, State)]
/// struct Memory {
///     keep: f64,
///     waiting: Vec<u32>,
/// }
///
/// let memory = Memory { keep: 0.5, waiting: vec![7, 9] };
/// assert_eq!(Memory::load(&memory.save()), Ok(memory));
/// assert!(Memory::load(b"something else").is_err());
/// ```
pub trait State: Sized {
    /// The bytes.
    fn save(&self) -> Vec<u8>;
    /// The state of these bytes, or what is wrong with them.
    fn load(bytes: &[u8]) -> Result<Self, String>;
}

impl State for () {
    fn save(&self) -> Vec<u8> {
        Vec::new()
    }

    fn load(bytes: &[u8]) -> Result<Self, String> {
        if bytes.is_empty() { Ok(()) } else { Err(format!("expected no state, got {} bytes", bytes.len())) }
    }
}

/// One field of a state.
pub trait Field: Sized {
    /// Appends the field's bytes.
    fn put(&self, bytes: &mut Vec<u8>);
    /// Takes the field off the front, or `None` where bytes are missing.
    fn take(bytes: &mut &[u8]) -> Option<Self>;
}

macro_rules! number {
    ($($type:ty),*) => {$(
        impl Field for $type {
            fn put(&self, bytes: &mut Vec<u8>) {
                bytes.extend_from_slice(&self.to_le_bytes());
            }

            fn take(bytes: &mut &[u8]) -> Option<Self> {
                let (head, rest) = bytes.split_first_chunk()?;
                *bytes = rest;
                Some(Self::from_le_bytes(*head))
            }
        }
    )*};
}

number!(u32, u64, i32, f32, f64);

impl Field for bool {
    fn put(&self, bytes: &mut Vec<u8>) {
        bytes.push(u8::from(*self));
    }

    fn take(bytes: &mut &[u8]) -> Option<Self> {
        let (head, rest) = bytes.split_first()?;
        *bytes = rest;
        match head {
            0 => Some(false),
            1 => Some(true),
            _ => None,
        }
    }
}

impl<F: Field> Field for Vec<F> {
    fn put(&self, bytes: &mut Vec<u8>) {
        (self.len() as u32).put(bytes);
        self.iter().for_each(|f| f.put(bytes));
    }

    fn take(bytes: &mut &[u8]) -> Option<Self> {
        let n = u32::take(bytes)?;
        (0..n).map(|_| F::take(bytes)).collect()
    }
}

impl<A: Field, B: Field> Field for (A, B) {
    fn put(&self, bytes: &mut Vec<u8>) {
        self.0.put(bytes);
        self.1.put(bytes);
    }

    fn take(bytes: &mut &[u8]) -> Option<Self> {
        Some((A::take(bytes)?, B::take(bytes)?))
    }
}

/// A mark of a struct's fields: FNV-1a over their names and types. For the derive.
#[doc(hidden)]
pub const fn mark(layout: &str) -> u32 {
    let bytes = layout.as_bytes();
    let mut hash = 0x811c_9dc5_u32;
    let mut i = 0;
    while i < bytes.len() {
        hash = (hash ^ bytes[i] as u32).wrapping_mul(0x0100_0193);
        i += 1;
    }
    hash
}
