//! The adapter for graders' contract 0.1. It converts between the host's and the component's types.
//!
//! Texts are lent to the guest without a copy on the host.

use allot_allocation::Value;
use wasmtime::Store;

use self::bindings::rollout::reward::{log, types};
use self::bindings::{Reward, RewardPre};
use crate::calls::Answer;
use crate::guest::GuestState;
use crate::judged::{Asked, GraderDescription, Judged};

#[allow(missing_docs)]
mod bindings {
    wasmtime::component::bindgen!({
        world: "reward",
        path: "../../wit/reward/0.1/reward.wit",
        ownership: Borrowing { duplicate_if_necessary: true },
    });
}

crate::adapter::conversions!();
crate::adapter::graders::graders!(|_: &types::Description| false);
