//! Remembers on disk what was seen of etcd: an older state of it is recognised at the next start too.

use std::sync::Arc;
use std::time::Duration;

use tokio_util::sync::CancellationToken;

use crate::controller::{Session, SessionHandle};
use crate::log::{ClaimedDirectory, LogManager, registry_notes};
use crate::metadata::MetadataCache;
use crate::registry::Seen;

/// At most so often it is written; not at all while nothing changes.
const EVERY: Duration = Duration::from_secs(10);

/// What the directories remember; one that was away for a while may remember less.
pub(super) fn remembered(directories: &[ClaimedDirectory]) -> Vec<Seen> {
    let notes = registry_notes(directories);
    let parsed = notes.iter().filter_map(|note| {
        let seen = serde_json::from_str(note);
        seen.inspect_err(|error| {
            tracing::warn!(%error, "what was noted of the registry is damaged, and not compared");
        })
        .ok()
    });
    parsed.collect()
}

/// Keeps the notes up to date.
#[derive(Debug)]
pub(super) struct Memory {
    session: SessionHandle,
    cluster_id: String,
    imported: Option<String>,
    metadata: Arc<MetadataCache>,
    logs: Arc<LogManager>,
}

impl Memory {
    pub(super) fn new(
        session: &Session,
        metadata: Arc<MetadataCache>,
        logs: Arc<LogManager>,
    ) -> Self {
        Self {
            session: session.handle(),
            cluster_id: session.cluster_id().to_owned(),
            imported: session.imported().map(str::to_owned),
            metadata,
            logs,
        }
    }

    /// Until `stop`, and once more then.
    pub(super) async fn run(self, stop: CancellationToken) {
        let mut written = None;
        loop {
            let stopped = stop.is_cancelled();
            let seen = self.seen();
            // Others may write to the same etcd all the time.
            let news = (seen.change.clone(), seen.registration);
            if written.as_ref() != Some(&news) {
                if let Ok(text) = serde_json::to_string(&seen) {
                    self.logs.note_registry(&text);
                }
                written = Some(news);
            }
            if stopped {
                return;
            }
            tokio::select! {
                () = stop.cancelled() => {}
                () = tokio::time::sleep(EVERY) => {}
            }
        }
    }

    fn seen(&self) -> Seen {
        let image = self.metadata.current();
        Seen {
            cluster_id: self.cluster_id.clone(),
            imported: self.imported.clone(),
            revision: image.revision,
            change: image.newest.clone(),
            registration: self.session.registered_at(),
        }
    }
}
