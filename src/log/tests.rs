//! Logs on a real disk: what they keep, and what they find again.

mod support;

mod basics;
pub(crate) mod crash;
mod damage;
mod disks;
mod faults;
mod flushing;
mod inspect;
mod life;
mod model;
mod producers;
mod recovery;
mod replication;
mod retention;
mod scrub;
mod truncation;
