//! Whose a log directory is: `meta.properties`.

use std::io;
use std::path::{Path, PathBuf};

use super::checkpoint::MetaProperties;
use super::claim::ClaimedDirectory;
use super::directory::{SMALL_FILE_BYTES_MAX, is_disk_fault, read_text};
use super::disk::{Disk, RealDisk, read_small_file, replace_file};
use super::log::LogError;
use super::names;
use crate::types::TopicId;

/// Who owns the directories.
#[derive(Debug, Clone, Copy)]
pub(super) struct Owner<'a> {
    pub cluster_id: &'a str,
    pub node_id: i32,
}

/// The cluster that the data belongs to, and the first directory that says so.
pub fn cluster_id_of(directories: &[ClaimedDirectory]) -> Option<(PathBuf, String)> {
    directories.iter().find_map(|directory| {
        let text = read_text(&RealDisk, &directory.path, names::META_PROPERTIES)?;
        let id = MetaProperties::from_text(&text).cluster_id?;
        Some((directory.path.clone(), id))
    })
}

/// What is left by a clean stop, in the form of Kafka's `CleanShutdownFileHandler`.
pub(super) fn clean_mark(incarnation: &str) -> String {
    format!("{{\"version\":0,\"brokerEpoch\":-1,\"incarnation\":\"{incarnation}\"}}")
}

/// The incarnation that stopped cleanly, as all of the directories say; gone once they are opened.
pub fn stopped_incarnation(directories: &[ClaimedDirectory]) -> Option<String> {
    let named = |directory: &ClaimedDirectory| incarnation_in(&RealDisk, &directory.path);
    let first = named(directories.first()?)?;
    let all = directories
        .iter()
        .all(|directory| directory.lock.is_ok() && named(directory).as_ref() == Some(&first));
    all.then_some(first)
}

/// The same of one directory.
pub(crate) fn incarnation_in(disk: &dyn Disk, path: &Path) -> Option<String> {
    let text = read_text(disk, path, names::CLEAN_SHUTDOWN)?;
    let mark: serde_json::Value = serde_json::from_str(&text).ok()?;
    let incarnation = mark.get("incarnation")?.as_str()?;
    (!incarnation.is_empty()).then(|| incarnation.to_owned())
}

/// `directory.id` of those directories that have one.
pub fn directory_ids(directories: &[ClaimedDirectory]) -> Vec<String> {
    let id = |directory: &ClaimedDirectory| {
        let text = read_text(&RealDisk, &directory.path, names::META_PROPERTIES)?;
        let id = MetaProperties::from_text(&text).directory_id?;
        Some(id.to_string())
    };
    directories.iter().filter_map(id).collect()
}

/// Whether there are files of partitions in any of them.
pub fn has_partitions(directories: &[ClaimedDirectory]) -> bool {
    directories.iter().any(|directory| {
        let entries = RealDisk.list(&directory.path).unwrap_or_default();
        entries.iter().any(|entry| {
            entry.is_directory && names::parse_partition_directory(&entry.name).is_some()
        })
    })
}

/// Refuses a directory of another cluster or node; writes `meta.properties` where there is none.
pub(super) fn check_owner(disk: &dyn Disk, path: &Path, owner: Owner<'_>) -> Result<(), LogError> {
    let file = path.join(names::META_PROPERTIES);
    let text = match read_small_file(disk, &file, SMALL_FILE_BYTES_MAX) {
        Err(error) if is_disk_fault(&error) => return Err(error.into()),
        _ => read_text(disk, path, names::META_PROPERTIES),
    };
    let found = text
        .map(|text| MetaProperties::from_text(&text))
        .filter(|meta| meta.cluster_id.is_some() || meta.node_id.is_some());
    let foreign = |what: &str, theirs: &dyn std::fmt::Display, ours: &dyn std::fmt::Display| {
        LogError::Unusable {
            path: path.to_owned(),
            reason: format!(
                "its meta.properties says that it belongs to {what} {theirs}, this broker is {what} {ours}"
            ),
            fix: format!("start the broker as {what} {theirs}, or give it a directory of its own"),
        }
    };
    let mut meta = MetaProperties {
        cluster_id: Some(owner.cluster_id.to_owned()),
        node_id: Some(owner.node_id),
        directory_id: Some(TopicId(*uuid::Uuid::new_v4().as_bytes())),
    };
    if let Some(found) = found {
        if let Some(id) = found.cluster_id.filter(|id| id != owner.cluster_id) {
            return Err(foreign("cluster", &id, &owner.cluster_id));
        }
        if let Some(id) = found.node_id.filter(|&id| id != owner.node_id) {
            return Err(foreign("node", &id, &owner.node_id));
        }
        if found.directory_id.is_some() {
            return Ok(());
        }
        meta.directory_id = meta.directory_id.or(found.directory_id);
    } else {
        sync_parents(disk, path)?;
    }
    replace_file(
        disk,
        &path.join(names::META_PROPERTIES),
        meta.to_text().as_bytes(),
        true, // a torn one would be somebody else's
    )?;
    Ok(())
}

/// Makes the name of a new log directory durable, and of those above it that may be as new.
pub(super) fn sync_parents(disk: &dyn Disk, path: &Path) -> io::Result<()> {
    for (number, parent) in path.ancestors().skip(1).enumerate() {
        let parent = match parent.as_os_str().is_empty() {
            true => Path::new("."),
            false => parent,
        };
        match disk.sync_directory(parent) {
            // Above somebody else's directory there is nothing of ours.
            Err(_) if number > 0 => break,
            result => result?,
        }
    }
    Ok(())
}
