//! What lies in the log directories and is nobody's any more, or is there twice.

use std::cmp::Reverse;
use std::sync::Arc;

use super::Replicas;
use crate::log::{LogError, LogManager, PartitionOnDisk};
use crate::metadata::Image;
use crate::types::{TopicId, TopicPartition};

/// Where Apache Kafka keeps what we keep in the registry; never ours to touch.
const KAFKA_METADATA_TOPIC: &str = "__cluster_metadata";

/// No partition waits behind the look for strays.
const LANE: u64 = u64::MAX;

impl Replicas {
    /// Renames to `…-stray` what lies in the log directories but belongs to no topic of the registry.
    /// Called once, when the first image is complete. Only names are read before it returns: thousands of
    /// partitions are looked into while the broker serves.
    pub fn remove_strays(&self, image: impl Fn() -> Arc<Image> + Send + 'static) {
        let mut found = self.shared.logs.names_on_disk();
        found.retain(|found| &*found.partition.topic != KAFKA_METADATA_TOPIC);
        if self.log_dir_states().len() > 1 {
            found.sort_by(|a, b| a.partition.cmp(&b.partition));
        }
        let mut to_look_at = Vec::with_capacity(found.len());
        for same in found.chunk_by(|a, b| a.partition == b.partition) {
            match same {
                [_, _, ..] => self.keep_one(same.to_vec(), &image()),
                _ => to_look_at.extend_from_slice(same),
            }
        }
        let Some(first) = to_look_at.first() else {
            return;
        };
        let executor = self.shared.executor(&first.partition);
        let logs = Arc::clone(&self.shared.logs);
        executor.submit(
            LANE,
            Box::new(move || look_for_strays(&logs, to_look_at, &image)),
        );
    }

    /// Of a partition in several directories one stays.
    fn keep_one(&self, mut found: Vec<PartitionOnDisk>, image: &Image) {
        for found in &mut found {
            self.shared.logs.look_at(found);
        }
        let is_known = |found: &PartitionOnDisk| is_known(image, found);
        let (known, strays): (Vec<_>, Vec<_>) = found.into_iter().partition(is_known);
        let mut put_aside = strays;
        put_aside.retain(|stray| self.set_aside(stray));
        let names: Vec<_> = put_aside.iter().map(|s| s.partition.to_string()).collect();
        warn_of_strays(&names);
        self.keep_largest(known);
    }

    fn set_aside(&self, stray: &PartitionOnDisk) -> bool {
        let set_aside = self.shared.logs.set_aside(stray);
        if let Err(error) = &set_aside {
            warn_of_failure(&stray.partition, error);
        }
        set_aside.is_ok()
    }

    /// A partition in several directories, as after a disk that was taken out came back. Kafka does
    /// not start then; we go on with the one that has most.
    fn keep_largest(&self, mut found: Vec<PartitionOnDisk>) {
        let logs = &self.shared.logs;
        found.sort_by_cached_key(|found| (Reverse(logs.bytes_on_disk(found)), found.directory));
        let paths = self.log_dir_states();
        let path = |found: &PartitionOnDisk| {
            paths
                .get(found.directory)
                .map(|(path, _)| path.display().to_string())
        };
        if let [kept, others @ ..] = &found[..] {
            for other in others {
                tracing::error!(
                    partition = %other.partition, kept = path(kept), put_aside = path(other),
                    "a partition is in two log directories: the larger one is served"
                );
                self.set_aside(other);
            }
        }
    }
}

/// Whether a topic of the registry has this partition.
fn is_known(image: &Image, found: &PartitionOnDisk) -> bool {
    let partition = &found.partition;
    image.topics.get(&partition.topic).is_some_and(|topic| {
        let same = |id: TopicId| id == topic.id || id.is_damaged(topic.id);
        found.topic_id.is_none_or(same)
            && usize::try_from(partition.partition)
                .is_ok_and(|index| index < topic.partitions.len())
    })
}

/// Puts those aside that no topic of the registry has by then.
fn look_for_strays(logs: &LogManager, found: Vec<PartitionOnDisk>, image: &dyn Fn() -> Arc<Image>) {
    let mut strays = Vec::new();
    for found in found {
        if logs.is_closed() {
            break;
        }
        let partition = found.partition.clone();
        match logs.set_aside_if(found, |found| !is_known(&image(), found)) {
            Ok(true) => strays.push(partition.to_string()),
            Ok(false) => {}
            Err(error) => warn_of_failure(&partition, &error),
        }
    }
    warn_of_strays(&strays);
}

fn warn_of_failure(partition: &TopicPartition, error: &LogError) {
    tracing::warn!(%partition, %error, "put a stray partition aside");
}

fn warn_of_strays(strays: &[String]) {
    const NAMED_MAX: usize = 20;
    if !strays.is_empty() {
        let named = &strays[..strays.len().min(NAMED_MAX)];
        tracing::warn!(count = strays.len(), partitions = ?named, "put stray partitions aside: no topic of the registry has them");
    }
}
