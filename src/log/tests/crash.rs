//! The log's word under power cuts: long random histories on a disk that loses what a disk may lose,
//! compared with a plain model.
//!
//! `LOG_HISTORY=<seed> cargo test --lib a_history_by_its_seed -- --nocapture` runs one again and says what
//! it does; `LOG_HISTORIES=<count>` runs more of them.

pub(crate) mod disk;
pub(crate) mod image;
mod lives;
mod made;
mod model;
mod random;
mod steps;
mod world;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;

use disk::Lie;
use steps::{Step, Weather, history};
use world::{Setup, World};

/// Runs the steps; the message of what is wrong.
fn run(steps: &[Step], setup: Setup) -> Result<(), String> {
    let ran = catch_unwind(AssertUnwindSafe(|| {
        let world = World::new(setup);
        for step in steps {
            world.run(step);
        }
        world.end();
    }));
    ran.map_err(|panic| {
        let text = panic.downcast_ref::<String>().cloned();
        text.or_else(|| panic.downcast_ref::<&str>().map(|text| (*text).to_owned()))
            .unwrap_or_default()
    })
}

/// What failed, and where.
#[derive(Debug)]
struct Failure {
    seed: u64,
    weather: Weather,
    message: String,
}

/// Runs the histories of these seeds on all cores until one fails; the number that ran.
fn search(
    seeds: std::ops::Range<u64>,
    weather: Weather,
    setup: impl Fn(u64) -> Setup + Sync,
) -> (u64, Option<Failure>) {
    let next = AtomicU64::new(seeds.start);
    let failed = Mutex::new(None::<Failure>);
    let threads = std::thread::available_parallelism().map_or(1, |threads| threads.get());
    let work = || {
        while failed.lock().is_none() {
            let seed = next.fetch_add(1, Ordering::Relaxed);
            if seed >= seeds.end {
                return;
            }
            if let Err(message) = run(&history(seed, weather), setup(seed)) {
                let failure = Failure {
                    seed,
                    weather,
                    message,
                };
                let mut failed = failed.lock();
                if failed.as_ref().is_none_or(|other| seed < other.seed) {
                    *failed = Some(failure);
                }
            }
        }
    };
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(work);
        }
    });
    let ran = next.load(Ordering::Relaxed).min(seeds.end) - seeds.start;
    (ran, failed.into_inner())
}

/// Leaves out steps as long as it fails.
fn shrink(mut steps: Vec<Step>, setup: Setup) -> (Vec<Step>, String) {
    let mut message = String::new();
    let mut chunk = steps.len();
    while chunk > 0 {
        let mut start = 0;
        while start < steps.len() {
            let mut fewer = steps.clone();
            fewer.drain(start..(start + chunk).min(steps.len()));
            match run(&fewer, setup) {
                Err(still) => {
                    message = still;
                    steps = fewer;
                }
                Ok(()) => start += chunk,
            }
        }
        chunk /= 2;
    }
    (steps, message)
}

/// Fails with what is needed to see it again.
fn report(failure: Failure, setup: Setup) {
    let Failure {
        seed,
        weather,
        message,
    } = failure;
    let (steps, shrunk) = shrink(history(seed, weather), setup);
    let steps: Vec<String> = steps.iter().map(|step| format!("  {step:?}")).collect();
    panic!(
        "history {seed} ({weather:?}): {message}\nin fewer steps: {shrunk}\n{}\n\
         LOG_HISTORY={seed} cargo test --lib a_history_by_its_seed -- --nocapture",
        steps.join("\n")
    );
}

fn setup(seed: u64) -> Setup {
    Setup {
        seed,
        // Some histories have the power cut before every operation, the others before some.
        cut_one_in: if seed.is_multiple_of(50) { 1 } else { 12 },
        lie: None,
        verbose: false,
    }
}

/// So many histories: `LOG_HISTORIES`, or few enough for everyday.
fn count(everyday: u64) -> u64 {
    let count = std::env::var("LOG_HISTORIES").ok();
    count.map_or(everyday, |count| count.parse().expect("a number"))
}

fn run_all(count: u64, weather: Weather) {
    let (_, failure) = search(0..count, weather, setup);
    if let Some(failure) = failure {
        let setup = setup(failure.seed);
        report(failure, setup);
    }
}

#[test]
fn a_history_by_its_seed() {
    let Ok(seed) = std::env::var("LOG_HISTORY") else {
        return;
    };
    let seed = seed.parse().expect("a number");
    for weather in [Weather::Fair, Weather::Foul] {
        let quiet = setup(seed);
        let Err(message) = run(&history(seed, weather), quiet) else {
            println!("{weather:?}: nothing is wrong");
            continue;
        };
        println!("{weather:?}: {message}");
        let (steps, _) = shrink(history(seed, weather), quiet);
        let verbose = Setup {
            verbose: true,
            ..quiet
        };
        run(&steps, verbose).unwrap();
    }
}

#[test]
fn what_was_flushed_is_there_after_any_power_cut() {
    run_all(count(400), Weather::Fair);
}

#[test]
fn no_failing_or_full_disk_makes_the_log_lie() {
    run_all(count(400) / 2, Weather::Foul);
}

/// Each lie must be found out: otherwise the histories prove nothing.
fn found_out(lie: Lie, within: u64) {
    let lying = |seed| Setup {
        lie: Some(lie),
        ..setup(seed)
    };
    let (ran, failure) = search(0..within, Weather::Fair, lying);
    let failure = failure.unwrap_or_else(|| panic!("{lie:?} passed in {ran} histories"));
    println!("{lie:?}: history {}: {}", failure.seed, failure.message);
}

#[test]
fn segments_that_are_not_synced_are_found_out() {
    found_out(Lie::Segments, 400);
}

#[test]
fn partition_directories_that_are_not_synced_are_found_out() {
    found_out(Lie::PartitionDirectories, 400);
}

#[test]
fn a_log_directory_that_is_not_synced_is_found_out() {
    found_out(Lie::LogDirectory, 400);
}

#[test]
fn checksums_that_nobody_looks_at_are_found_out() {
    found_out(Lie::Checksums, 400);
}

#[test]
fn a_page_cache_that_is_taken_for_another_is_found_out() {
    found_out(Lie::PageCache, 400);
}

#[test]
fn small_files_that_are_not_synced_are_found_out() {
    for lie in [Lie::Metadata, Lie::Snapshots, Lie::LogStarts] {
        found_out(lie, 2_000);
    }
}
