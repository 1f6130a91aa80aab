//! Giving log directories to a cluster before its first start (`kafka-storage format`), and telling whose they are.

use std::io;
use std::path::Path;

use super::checkpoint::MetaProperties;
use super::disk::{Disk, RealDisk, read_small_file, replace_file};
use super::names;
use super::owner::sync_parents;
use crate::types::TopicId;

const META_BYTES_MAX: u64 = 1 << 16;

/// What `meta.properties` says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DirectoryOwner {
    pub cluster_id: Option<String>,
    pub node_id: Option<i32>,
    pub directory_id: Option<String>,
}

/// Whose a directory is; `None` if nobody has written its `meta.properties`.
pub fn directory_owner(path: &Path) -> io::Result<Option<DirectoryOwner>> {
    let file = path.join(names::META_PROPERTIES);
    let text = match read_small_file(&RealDisk, &file, META_BYTES_MAX) {
        Ok(text) => text,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error),
    };
    let meta = MetaProperties::from_text(&String::from_utf8_lossy(&text));
    Ok(Some(DirectoryOwner {
        cluster_id: meta.cluster_id,
        node_id: meta.node_id,
        directory_id: meta.directory_id.map(|id| id.to_string()),
    }))
}

/// Writes `meta.properties`, durably, into a directory that has none. The broker that starts on it makes a new
/// cluster of that id, or refuses if its registry has another.
pub fn format_directory(path: &Path, cluster_id: &str, node_id: i32) -> io::Result<()> {
    RealDisk.create_directory(path)?;
    sync_parents(&RealDisk, path)?;
    let meta = MetaProperties {
        cluster_id: Some(cluster_id.to_owned()),
        node_id: Some(node_id),
        directory_id: Some(TopicId(*uuid::Uuid::new_v4().as_bytes())),
    };
    let file = path.join(names::META_PROPERTIES);
    replace_file(&RealDisk, &file, meta.to_text().as_bytes(), true)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_directory_is_given_to_a_cluster() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("a/b");
        assert_eq!(directory_owner(&path).unwrap(), None);
        format_directory(&path, "4L6g3nShT-eMCtK--X86sw", 3).unwrap();
        let owner = directory_owner(&path).unwrap().unwrap();
        assert_eq!(owner.cluster_id.as_deref(), Some("4L6g3nShT-eMCtK--X86sw"));
        assert_eq!(owner.node_id, Some(3));
        assert_eq!(owner.directory_id.unwrap().len(), 22);
    }
}
