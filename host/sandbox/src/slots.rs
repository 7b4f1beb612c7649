//! Memory for instances that is kept from one call to the next, and reset. Each call has a fresh instance, which would otherwise
//! begin with nothing but a mapping of the component's first memory: an interpreter then has 800 page faults in a call, and each interrupts
//! the cores on which other calls run.

use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

use wasmtime::{Config, Engine, InstanceAllocationStrategy, PoolingAllocationConfig};

use crate::Caps;
use crate::guest::TABLE_ELEMENT;

/// Bytes of a memory that are written anew after a call, which costs less than their page faults; what is above goes back to
/// the system. Interpreters have 13 MiB.
const KEPT: usize = 16 << 20;
/// Limits for one component. One that has more of these gets its memory from the system for each call, with the same results.
const MEMORIES: u32 = 2;
const TABLES: u32 = 8;
const CORE_INSTANCES: u32 = 64;
const COMPONENT_INSTANCES: u32 = 4;
/// Bytes of the engine's own data about an instance.
const ABOUT: usize = 4 << 20;

/// Room for so many calls at a time. More wait.
pub(crate) struct Slots {
    free: Mutex<usize>,
    freed: Condvar,
}

/// A call's room, which is free again when this is dropped.
pub(crate) struct Slot<'s>(&'s Slots);

impl Slots {
    /// Returns an engine that keeps memory, with its room; or `None` where that can't be had, as under a limit of address space.
    /// The limits that a guest meets are those of `caps`: no slot is smaller.
    pub fn engine(config: &Config, caps: Caps) -> Option<(Engine, Self)> {
        let most = 4 << 30;
        if caps.memory > most {
            return None;
        }
        // From 128 memories on, wasmtime would give each new thread a part of its own, and each call of a guest with WASI has
        // a new thread.
        let calls = std::thread::available_parallelism().map_or(16, |cores| (2 * cores.get()).clamp(16, 63));
        let each = |limit: u32| limit * calls as u32;
        let mut pool = PoolingAllocationConfig::new();
        pool.max_memories_per_component(MEMORIES)
            .max_memories_per_module(MEMORIES)
            .total_memories(each(MEMORIES))
            // So no more of them are kept than there were calls at the same time.
            .max_unused_warm_slots(0)
            .max_memory_size(most)
            .linear_memory_keep_resident(KEPT)
            .max_tables_per_component(TABLES)
            .max_tables_per_module(TABLES)
            .total_tables(each(TABLES))
            .table_elements(caps.memory / TABLE_ELEMENT)
            .table_keep_resident(1 << 20)
            .max_core_instances_per_component(CORE_INSTANCES)
            .total_core_instances(each(CORE_INSTANCES))
            .max_core_instance_size(ABOUT)
            .total_component_instances(each(COMPONENT_INSTANCES))
            .max_component_instance_size(ABOUT);
        let mut config = config.clone();
        config.allocation_strategy(InstanceAllocationStrategy::Pooling(pool));
        let engine = Engine::new(&config).ok()?;
        Some((engine, Self { free: Mutex::new(calls), freed: Condvar::new() }))
    }

    /// Waits until there is room for a call.
    pub fn enter(&self) -> Slot<'_> {
        let mut free =
            self.freed.wait_while(self.free(), |free| *free == 0).unwrap_or_else(PoisonError::into_inner);
        *free -= 1;
        Slot(self)
    }

    fn free(&self) -> MutexGuard<'_, usize> {
        self.free.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Slot<'_> {
    fn drop(&mut self) {
        *self.0.free() += 1;
        self.0.freed.notify_one();
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;
    use std::time::Duration;

    use super::*;

    #[test]
    fn a_call_without_room_waits_until_another_ends() {
        let slots = Slots { free: Mutex::new(1), freed: Condvar::new() };
        let slot = slots.enter();
        std::thread::scope(|scope| {
            let (entered, told) = mpsc::channel();
            let slots = &slots;
            scope.spawn(move || {
                let _slot = slots.enter();
                entered.send(()).expect("it is waited for");
            });
            assert!(told.recv_timeout(Duration::from_millis(50)).is_err());
            drop(slot);
            told.recv().expect("there is room");
        });
        assert_eq!(*slots.free(), 1);
    }
}
