//! Arguments, configuration, logging, the broker, and the signals that stop it.

use std::process::ExitCode;
use std::time::Duration;

use anyhow::Context;
use ottla::broker::Broker;
use ottla::cli::{Arguments, Start, container, environment};
use ottla::config::BrokerConfig;
use ottla::telemetry::logging;
use tokio::signal::unix::{SignalKind, signal};

/// One that waits for a disk leaves the other (`log::Callers`).
const WORKER_THREADS_MIN: usize = 2;
/// More would only add stacks: the work is in the kernel and on the log directories' threads.
const WORKER_THREADS_MAX: usize = 8;
#[cfg(target_env = "gnu")]
const HEAP_ARENAS: i32 = 2;
/// From here on memory comes from the kernel and goes back to it.
#[cfg(target_env = "gnu")]
const HEAP_PIECE_BYTES_MAX: i32 = 64 << 10;
/// So much free memory at a heap's end is kept for the next moment.
#[cfg(target_env = "gnu")]
const HEAP_SPARE_BYTES: i32 = 1 << 20;
/// The first clients are served by then.
const START_FORGOTTEN_AFTER: Duration = Duration::from_secs(1);
/// How often memory that is not used is given back: what is used costs a few hundred faults of 1 us each then.
const GIVE_BACK_EVERY: Duration = Duration::from_secs(15);
const EXIT_AT_ONCE: i32 = 130;
/// As Kafka ends itself.
const EXIT_NO_DIRECTORY: i32 = 1;

fn main() -> ExitCode {
    limit_heap();
    raise_descriptor_limit();
    let process = std::env::args_os();
    let process = process.map(|argument| argument.to_string_lossy().into_owned());
    let process = match ottla::cli::run_tool(process.collect()) {
        Ok(code) => return code,
        Err(process) => process,
    };
    let arguments = Arguments::of(&process);
    let start = match arguments.start() {
        Ok(start) => start,
        Err(command) => return command.run(),
    };
    logging::init(|name| std::env::var(name).ok());
    match run(start) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("ottla: {error:#}");
            ExitCode::FAILURE
        }
    }
}

/// glibc gives each thread a heap of its own to take from, and none gives back what another could use:
/// two heaps instead of up to eight a core keep the peak under load at 35 instead of 44 MiB, at the
/// same CPU. Large pieces do not come from them: what is used all the time (frames) is kept and used
/// again, and what is not would leave holes.
#[cfg(target_env = "gnu")]
#[allow(unsafe_code)] // there is no safe form; no other thread runs yet
fn limit_heap() {
    // SAFETY: mallopt only sets numbers that the allocator reads when memory is asked for.
    unsafe {
        libc::mallopt(libc::M_ARENA_MAX, HEAP_ARENAS);
        libc::mallopt(libc::M_MMAP_THRESHOLD, HEAP_PIECE_BYTES_MAX);
        libc::mallopt(libc::M_TRIM_THRESHOLD, HEAP_SPARE_BYTES);
    }
}

#[cfg(not(target_env = "gnu"))]
fn limit_heap() {}

/// Gives back whole free pages in the middle of the heaps, which glibc keeps: five thousand connections
/// that came and went would leave some 10 MiB.
#[cfg(target_env = "gnu")]
#[allow(unsafe_code)] // there is no safe form
fn trim_heap() {
    // SAFETY: it takes the allocator's own locks and touches only what is free.
    unsafe { libc::malloc_trim(0) };
}

#[cfg(not(target_env = "gnu"))]
fn trim_heap() {}

/// Takes all the file descriptors that the system grants, as the JVM does.
fn raise_descriptor_limit() {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let maximum = getrlimit(Resource::Nofile).maximum;
    let raised = Rlimit {
        current: maximum,
        maximum,
    };
    // Where that is refused the broker gets by with what it has.
    let _ = setrlimit(Resource::Nofile, raised);
}

/// A container's first process is the parent of whatever lost its own: health checks that ran into
/// their time limit, say. Never ends.
async fn bury_orphans() {
    use rustix::process::{WaitOptions, getpid, wait};
    if getpid().is_init()
        && let Ok(mut died) = signal(SignalKind::child())
    {
        while died.recv().await.is_some() {
            while let Ok(Some(_)) = wait(WaitOptions::NOHANG) {}
        }
    }
    std::future::pending().await
}

/// Has the kernel take the pages of code out of this process that only the start, or what a client asks
/// for once, needed: what runs comes back by itself, from the page cache. They are half of what an idle
/// broker would count, and a quarter of what a busy one would.
#[cfg(target_os = "linux")]
#[allow(unsafe_code)] // there is no safe form
fn forget_idle_code() {
    use rustix::mm::{Advice, madvise};
    // Where it cannot be read nothing is lost.
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap_or_default();
    for line in maps
        .lines()
        .filter(|line| line.contains(" r-xp ") && line.contains('/'))
    {
        let range = line
            .split_once(' ')
            .and_then(|(range, _)| range.split_once('-'));
        let Some((start, end)) = range else { continue };
        let number = |text| usize::from_str_radix(text, 16);
        if let (Ok(start), Ok(end)) = (number(start), number(end)) {
            let address = std::ptr::with_exposed_provenance_mut(start);
            // SAFETY: executable mappings of files are private and never written to: the pages that
            // are dropped are those of the file, which the next access maps again.
            let _ = unsafe { madvise(address, end - start, Advice::LinuxDontNeed) };
        }
    }
}

#[cfg(not(target_os = "linux"))]
fn forget_idle_code() {}

fn run(start: Start<'_>) -> anyhow::Result<()> {
    let mut loaded = BrokerConfig::load(start.file, environment(), start.overrides)?;
    if start.in_container {
        container::open_metrics(&mut loaded);
    }
    let node_id = loaded.config.node_id.0;
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(cores.clamp(WORKER_THREADS_MIN, WORKER_THREADS_MAX))
        .thread_name("ottla")
        .enable_all()
        .build()
        .context("start the runtime")?;
    runtime.block_on(async {
        let mut terminate = signal(SignalKind::terminate()).context("listen for SIGTERM")?;
        let mut interrupt = signal(SignalKind::interrupt()).context("listen for SIGINT")?;
        let mut orphans = std::pin::pin!(bury_orphans());
        let broker = tokio::select! {
            broker = Broker::start(loaded) => broker?,
            // While it waits for the registry.
            _ = terminate.recv() => return Ok(()),
            _ = interrupt.recv() => return Ok(()),
            () = &mut orphans => return Ok(()),
        };
        if start.in_container {
            container::announce(node_id);
        }
        let forget = async {
            tokio::time::sleep(START_FORGOTTEN_AFTER).await;
            loop {
                forget_idle_code();
                trim_heap();
                tokio::time::sleep(GIVE_BACK_EVERY).await;
            }
        };
        tokio::select! {
            () = forget => {}
            () = &mut orphans => {}
            _ = terminate.recv() => {}
            _ = interrupt.recv() => {}
            () = broker.failed() => {
                tracing::error!("every log directory has failed: the broker ends");
                // Nothing could be written any more, and a dead disk may hold up whoever tries.
                std::process::exit(EXIT_NO_DIRECTORY);
            }
        }
        tokio::select! {
            () = broker.stop() => Ok(()),
            () = &mut orphans => Ok(()),
            _ = terminate.recv() => std::process::exit(EXIT_AT_ONCE),
            _ = interrupt.recv() => std::process::exit(EXIT_AT_ONCE),
        }
    })
}
