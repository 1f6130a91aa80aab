//! A cluster in one thread from one seed: three to five brokers, the registry, clients, the network and the
//! disks, with everything that goes wrong with them.
//!
//! The brokers are the real ones on simulated seams: session, watcher, controller, publisher of in-sync
//! replicas, fetchers with their frames, partitions and logs. Simulated are the clock, the disks (what is not
//! synced may be lost, as in the log's own crash tests), the registry's store, and what carries messages:
//! they come late, never, in another order. Tasks run one after the other, when the world lets them.
//!
//! Checked after every event: what is committed anywhere is committed for ever, with the same record at
//! each offset; what was acknowledged is committed, once; one leader an epoch; `isr ⊆ replicas`,
//! `elr ∩ isr = ∅`; who may lead has what is committed; logs that share an epoch share all before it; the end
//! that a consumer is told does not go back. At the end all faults stop: then the cluster must come to rest
//! with all replicas alike. Rules that cover for one another are checked by what they say themselves as well.

mod clients;
mod faults;
mod node;
mod oracle;
mod post;
mod serve;
mod store;
mod world;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;

use crate::types::rules::{Rule, switch_off};
use world::World;

/// How much happened.
#[derive(Debug, Default, Clone)]
struct Counts {
    events: u64,
    faults: u64,
    acknowledged: u64,
    terms: u64,
    isr_changes: u64,
    counted: u64,
}

impl Counts {
    fn add(&mut self, more: &Self) {
        self.events += more.events;
        self.faults += more.faults;
        self.acknowledged += more.acknowledged;
        self.terms += more.terms;
        self.isr_changes += more.isr_changes;
        self.counted += more.counted;
    }
}

#[derive(Debug, Default, Clone, Copy)]
struct Options {
    /// Says what happens.
    tells: bool,
    /// Fails where something is lost, not where a rule is broken that another one covers.
    losses_only: bool,
}

fn run(seed: u64, options: Options) -> Counts {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .start_paused(true)
        .build()
        .unwrap();
    runtime.block_on(tokio::task::unconstrained(async {
        World::new(seed, options).run().await
    }))
}

fn seeds(variable: &str, default: u64) -> u64 {
    std::env::var(variable).map_or(default, |count| count.parse().unwrap())
}

/// `SIMULATION_SEEDS` histories from `SIMULATION_FROM` on.
#[test]
fn nothing_acknowledged_is_lost() {
    let from = seeds("SIMULATION_FROM", 1);
    let count = seeds("SIMULATION_SEEDS", 15);
    let next = AtomicU64::new(from);
    let total = Mutex::new(Counts::default());
    let work = || {
        loop {
            let seed = next.fetch_add(1, Ordering::Relaxed);
            if seed >= from + count {
                return;
            }
            let counts = run(seed, Options::default());
            let is_enough =
                counts.faults >= 3 && counts.events >= 2_000 && counts.acknowledged >= 200;
            assert!(is_enough, "seed {seed}: {counts:?}");
            total.lock().add(&counts);
        }
    };
    std::thread::scope(|scope| {
        for _ in 1..seeds("SIMULATION_THREADS", 1) {
            scope.spawn(work);
        }
        work();
    });
    println!("{count} seeds: {:?}", total.into_inner());
}

/// What one of them found: a broker that had lost its page cache registered although it was still eligible,
/// since the controller had changed the partition while it was leaving (R10).
#[test]
fn a_history_that_lost_something_once() {
    run(17_063, Options::default());
}

/// `SIMULATION_SEED=n cargo test --lib a_simulation_by_its_seed -- --nocapture` tells what happens, with
/// what the brokers log (`SIMULATION_TRACE=1`: all of it).
#[test]
fn a_simulation_by_its_seed() {
    let Ok(seed) = std::env::var("SIMULATION_SEED") else {
        return;
    };
    let options = Options {
        tells: true,
        losses_only: false,
    };
    let subscriber = tracing_subscriber::fmt().with_test_writer().without_time();
    let level = match std::env::var("SIMULATION_TRACE") {
        Ok(_) => tracing::Level::TRACE,
        Err(_) => tracing::Level::INFO,
    };
    let subscriber = subscriber.with_max_level(level).finish();
    tracing::subscriber::with_default(subscriber, || {
        println!("{:?}", run(seed.parse().unwrap(), options));
    });
}

/// How many seeds it takes until it is noticed that the rules are off; `None`: more than `most`.
fn noticed(rules: &[Rule], most: u64, losses_only: bool) -> Option<(u64, String)> {
    let options = Options {
        losses_only,
        ..Options::default()
    };
    let hook = std::panic::take_hook();
    std::panic::set_hook(Box::new(|_| {}));
    switch_off(rules);
    let found = (1..=most).find_map(|seed| {
        let ran = catch_unwind(AssertUnwindSafe(|| run(seed, options)));
        let panic = ran.err()?;
        let text = panic.downcast_ref::<String>().cloned();
        let text = text.unwrap_or_default();
        assert!(text.starts_with("seed"), "the simulation itself: {text}");
        Some((seed, text))
    });
    switch_off(&[]);
    std::panic::set_hook(hook);
    found
}

/// Each rule in turn.
#[test]
#[ignore = "minutes; by hand"]
fn every_rule_is_missed() {
    let most = seeds("SIMULATION_SEEDS", 2_000);
    let losses_only = std::env::var("SIMULATION_LOSSES").is_ok();
    let table: [&[Rule]; 17] = [
        &[Rule::R1],
        &[Rule::R2],
        &[Rule::R3],
        &[Rule::R4],
        &[Rule::R5],
        &[Rule::R6],
        &[Rule::R7],
        &[Rule::R8],
        &[Rule::R9],
        &[Rule::R10],
        &[Rule::R11],
        &[Rule::R12],
        &[Rule::R13],
        &[Rule::R14],
        &[Rule::R15],
        &[Rule::R2, Rule::R5],
        &[Rule::R1, Rule::R11],
    ];
    let only = std::env::var("SIMULATION_RULES").unwrap_or_default();
    let mut unnoticed = Vec::new();
    for rules in table {
        let name = format!("{rules:?}");
        if !name.contains(&only) {
            continue;
        }
        match noticed(rules, most, losses_only) {
            Some((seed, how)) => println!("{name}: seed {seed}: {how}"),
            None => unnoticed.push(name),
        }
    }
    assert!(unnoticed.is_empty(), "not noticed: {unnoticed:?}");
}
