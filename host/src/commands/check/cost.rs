//! The cost of a call.

use std::time::Instant;

use allot_sandbox::Fault;
use serde_json::{Value, json};

use super::time::Time;

/// The cost of the fastest of several calls, because the machine may be busy. Or the fault of a call that
/// failed; nothing if it was not measured.
#[derive(Default)]
pub struct Cost {
    measured: Option<Result<Numbers, Fault>>,
}

struct Numbers {
    /// Wasm instructions, if they were counted.
    fuel: Option<u64>,
    millis: f64,
    /// Bytes, if they were counted.
    memory: Option<usize>,
}

impl Cost {
    /// Measures a call, and stores its cost if it is the fastest so far.
    pub fn measure(&mut self, time: Time, call: impl FnOnce() -> Result<allot_sandbox::Cost, Fault>) {
        let start = Instant::now();
        let called = call();
        let millis = start.elapsed().as_secs_f64() * 1e3;
        match (called, &self.measured) {
            (Err(fault), _) if time.ended(&fault) => {}
            (Ok(_), Some(Ok(fastest))) if millis >= fastest.millis => {}
            (called, _) => {
                // Drafts count neither fuel nor memory.
                let counted = |cost: allot_sandbox::Cost| match cost.fuel {
                    0 => Numbers { fuel: None, millis, memory: None },
                    fuel => Numbers { fuel: Some(fuel), millis, memory: Some(cost.memory) },
                };
                let numbers = called.map(counted);
                self.measured = Some(numbers);
            }
        }
    }

    /// Returns whether it was not measured.
    pub fn is_missing(&self) -> bool {
        self.measured.is_none()
    }

    /// Returns the fault, if the call failed.
    pub fn fault(&self) -> Option<&Fault> {
        self.measured.as_ref()?.as_ref().err()
    }

    /// Returns the heads of its columns in a table.
    pub fn head() -> String {
        let [fuel, millis, memory] = ["fuel", "ms", "memory"];
        format!("{fuel:>12}  {millis:>9}  {memory:>10}")
    }

    /// Returns its columns in a table.
    pub fn columns(&self) -> String {
        match &self.measured {
            Some(Ok(Numbers { fuel, millis, memory })) => {
                let fuel = fuel.map_or("not counted".to_owned(), |fuel| fuel.to_string());
                let memory = memory.map_or("–".to_owned(), |memory| format!("{} KiB", memory >> 10));
                format!("{fuel:>12}  {millis:>9.2}  {memory:>10}")
            }
            Some(Err(fault)) => {
                format!("not measured: {}", fault.to_string().lines().next().unwrap_or_default())
            }
            None => "not measured".to_owned(),
        }
    }

    /// Returns the cost as JSON, added to the object `of`.
    pub fn json(&self, of: Value) -> Value {
        let mut row = of;
        let numbers = self.measured.as_ref().and_then(|measured| measured.as_ref().ok());
        row["fuel"] = json!(numbers.and_then(|numbers| numbers.fuel));
        row["ms"] = json!(numbers.map(|numbers| numbers.millis));
        row["memory"] = json!(numbers.and_then(|numbers| numbers.memory));
        row["fault"] = json!(self.fault().map(ToString::to_string));
        row
    }
}
