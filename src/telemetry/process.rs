//! What the operating system says of this process.

use rustix::process::{Resource, getrlimit};

/// Numbers of `/proc/self`; zero where the system does not tell.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(super) struct Process {
    pub cpu_seconds: f64,
    pub resident_bytes: u64,
    pub virtual_bytes: u64,
    pub threads: u64,
    pub open_fds: u64,
    pub max_fds: u64,
    /// Seconds since 1970.
    pub start_seconds: f64,
    pub disk_read_bytes: u64,
    pub disk_write_bytes: u64,
}

/// Of `/proc/*/stat` on every architecture that Linux runs on today.
const TICKS_PER_SECOND: f64 = 100.0;

impl Process {
    pub(super) fn read() -> Self {
        let stat = read("/proc/self/stat");
        // The second field, the name, may contain anything; behind its last parenthesis all is numbers.
        let fields: Vec<&str> = stat
            .rsplit_once(')')
            .map_or("", |(_, rest)| rest)
            .split_ascii_whitespace()
            .collect();
        let field = |index: usize| number(fields.get(index - 3).copied().unwrap_or_default());
        let statm = read("/proc/self/statm");
        let pages = |index: usize| {
            number(
                statm
                    .split_ascii_whitespace()
                    .nth(index)
                    .unwrap_or_default(),
            )
        };
        let page = rustix::param::page_size() as u64;
        let io = read("/proc/self/io");
        Self {
            cpu_seconds: (field(14) + field(15)) as f64 / TICKS_PER_SECOND,
            resident_bytes: pages(1) * page,
            virtual_bytes: pages(0) * page,
            threads: field(20),
            open_fds: std::fs::read_dir("/proc/self/fd")
                .map_or(0, |entries| entries.count().saturating_sub(1) as u64),
            max_fds: getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX),
            start_seconds: line_of(&read("/proc/stat"), "btime ") as f64
                + field(22) as f64 / TICKS_PER_SECOND,
            disk_read_bytes: line_of(&io, "read_bytes: "),
            disk_write_bytes: line_of(&io, "write_bytes: "),
        }
    }
}

fn read(path: &str) -> String {
    std::fs::read_to_string(path).unwrap_or_default()
}

fn number(text: &str) -> u64 {
    text.parse().unwrap_or_default()
}

fn line_of(text: &str, prefix: &str) -> u64 {
    text.lines()
        .find_map(|line| line.strip_prefix(prefix))
        .map_or(0, |value| number(value.trim()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_process_has_memory_files_and_a_start() {
        let process = Process::read();
        assert!(process.resident_bytes > 1 << 20, "{process:?}");
        assert!(process.virtual_bytes >= process.resident_bytes);
        assert!(process.open_fds >= 3 && process.open_fds < process.max_fds);
        assert!(process.start_seconds > 1_600_000_000.0);
    }
}
