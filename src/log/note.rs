//! A note of the broker's own in each log directory: what it has seen of its registry. The log neither reads nor
//! needs it.

use std::sync::Arc;

use super::Executor;
use super::claim::ClaimedDirectory;
use super::directory::{Directory, read_text};
use super::disk::{RealDisk, replace_file};
use super::manager::LogManager;
use super::names;

/// No partition's: it waits for none.
const LANE: u64 = 0;

/// The notes that were left, with the directories that they are in.
pub fn registry_notes(directories: &[ClaimedDirectory]) -> Vec<String> {
    let note = |directory: &ClaimedDirectory| {
        let readable = directory.lock.is_ok();
        readable.then(|| read_text(&RealDisk, &directory.path, names::REGISTRY_SEEN))?
    };
    directories.iter().filter_map(note).collect()
}

impl LogManager {
    /// Leaves a note in each directory that works, durably, on threads of theirs.
    pub fn note_registry(&self, text: &str) {
        for directory in self.directories.iter().filter(|d| d.is_online()) {
            let (directory, text) = (Arc::clone(directory), text.to_owned());
            let executor = Arc::clone(&directory.executor);
            executor.submit(LANE, Box::new(move || write(&directory, &text)));
        }
    }
}

fn write(directory: &Directory, text: &str) {
    let path = directory.path.join(names::REGISTRY_SEEN);
    if let Err(error) = replace_file(&*directory.disk, &path, text.as_bytes(), true) {
        tracing::warn!(path = %path.display(), %error, "note what was seen of the registry");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::log::LogManagerConfig;
    use crate::time::SystemClock;

    #[test]
    fn the_last_note_is_found_at_the_next_start() {
        let directory = tempfile::tempdir().unwrap();
        let config = LogManagerConfig::for_tests(directory.path().into());
        let logs = LogManager::open(config, Arc::new(SystemClock)).unwrap();
        logs.note_registry("first");
        logs.note_registry("second");
        logs.close();
        drop(logs);
        let claimed = LogManager::claim(&[directory.path().into()]).unwrap();
        assert_eq!(registry_notes(&claimed), ["second"]);
    }
}
