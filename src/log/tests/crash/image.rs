//! What is on the disk, in the page cache and on the platter, and what a power cut makes of it.
//!
//! Nothing is durable before it is synced, and what is not may survive in part and in any order:
//! * of the writes and truncations of a file any may be there, the last one torn at any byte, or only
//!   their length and zeros for bytes;
//! * of the names made, moved and removed in a directory any may be there: all, none, those up to a
//!   moment (a journal), or any; a name may be there before what it names has a content;
//! * a sync of a file says nothing of its name, one of a directory nothing of contents;
//! * after a failed sync what was to be synced is lost or not, and a later sync does not bring it back.

use std::collections::BTreeMap;
use std::io;
use std::path::{Component, Path};
use std::sync::Arc;

use super::random::Random;
use crate::log::DirectoryEntry;
use crate::record::BatchHeader;

pub(super) type NodeId = u64;
const ROOT: NodeId = 0;

/// A file system at one moment. Cloning it is cheap.
#[derive(Debug, Clone)]
pub(crate) struct Image {
    nodes: BTreeMap<NodeId, Node>,
    next: NodeId,
    /// Changes of names so far.
    journal: u64,
    /// Changes of files so far: the time that files are written at.
    ticks: i64,
    /// Power cuts so far.
    pub(super) page_cache: u64,
}

#[derive(Debug, Clone)]
enum Node {
    File(FileNode),
    Directory(DirectoryNode),
}

#[derive(Debug, Clone, Default)]
struct FileNode {
    content: Arc<Vec<u8>>,
    durable: Arc<Vec<u8>>,
    /// Since the last sync.
    pending: Vec<Change>,
    modified: i64,
    /// A sync failed: `content` holds what no sync will bring to the platter.
    failed: bool,
}

#[derive(Debug, Clone)]
enum Change {
    Write { position: usize, bytes: Arc<[u8]> },
    Truncate(usize),
}

#[derive(Debug, Clone, Default)]
struct DirectoryNode {
    names: BTreeMap<String, NodeId>,
    durable: BTreeMap<String, NodeId>,
    pending: Vec<(u64, NameChange)>,
}

#[derive(Debug, Clone)]
enum NameChange {
    Link(String, NodeId),
    Unlink(String),
    Rename {
        from: String,
        to: String,
        node: NodeId,
    },
}

impl Default for Image {
    fn default() -> Self {
        let root = Node::Directory(DirectoryNode::default());
        Self {
            nodes: BTreeMap::from([(ROOT, root)]),
            next: ROOT + 1,
            journal: 0,
            ticks: 0,
            page_cache: 0,
        }
    }
}

impl Change {
    fn apply(&self, content: &mut Vec<u8>) {
        match self {
            Self::Write { position, bytes } => write(content, *position, bytes),
            Self::Truncate(length) => content.resize(*length, 0),
        }
    }
}

fn write(content: &mut Vec<u8>, position: usize, bytes: &[u8]) {
    let end = position + bytes.len();
    if content.len() < end {
        content.resize(end, 0);
    }
    content[position..end].copy_from_slice(bytes);
}

impl FileNode {
    fn change(&mut self, change: Change) {
        change.apply(Arc::make_mut(&mut self.content));
        self.pending.push(change);
    }

    fn sync(&mut self) {
        if self.failed {
            let durable = Arc::make_mut(&mut self.durable);
            self.pending.iter().for_each(|change| change.apply(durable));
        } else {
            self.durable = Arc::clone(&self.content);
        }
        self.pending.clear();
    }

    /// A sync that fails has synced something, and nobody knows what.
    fn fail_sync(&mut self, random: &mut Random) {
        self.durable = self.survivor(random);
        self.pending.clear();
        self.failed = true;
    }

    fn survivor(&self, random: &mut Random) -> Arc<Vec<u8>> {
        if self.pending.is_empty() {
            return Arc::clone(&self.durable);
        }
        let mut content = self.durable.to_vec();
        let kept = random.below(self.pending.len() + 1);
        match random.below(5) {
            0 => {}
            1 => self.pending.iter().for_each(|c| c.apply(&mut content)),
            2 => self.torn(kept, &mut content, random),
            3 => {
                for change in &self.pending {
                    if random.one_in(2) {
                        change.apply(&mut content);
                    }
                }
            }
            _ => self.lengthened(kept, &mut content, random),
        }
        Arc::new(content)
    }

    /// The first changes and a part of the next.
    fn torn(&self, kept: usize, content: &mut Vec<u8>, random: &mut Random) {
        let (kept, lost) = self.pending.split_at(kept);
        kept.iter().for_each(|change| change.apply(content));
        if let Some(next) = lost.first() {
            tear(next, content, random);
        }
    }

    /// The first changes and a part of the next, of the others only the lengths.
    fn lengthened(&self, kept: usize, content: &mut Vec<u8>, random: &mut Random) {
        let (kept, lost) = self.pending.split_at(kept);
        kept.iter().for_each(|change| change.apply(content));
        for (number, change) in lost.iter().enumerate() {
            let Change::Write { position, bytes } = change else {
                change.apply(content);
                continue;
            };
            if number == 0 {
                // What is lost are sectors: more than the last few bytes.
                let part = random
                    .below(bytes.len() + 1)
                    .min(bytes.len().saturating_sub(16));
                write(content, *position, &bytes[..part]);
            }
            let end = position + bytes.len();
            if content.len() < end {
                content.resize(end, 0);
            }
        }
    }
}

fn tear(change: &Change, content: &mut Vec<u8>, random: &mut Random) {
    if let Change::Write { position, bytes } = change {
        let part = &bytes[..random.below(bytes.len() + 1)];
        if !part.is_empty() {
            write(content, *position, part);
        }
    }
}

impl NameChange {
    fn apply(&self, names: &mut BTreeMap<String, NodeId>) {
        match self {
            Self::Link(name, node) => {
                names.insert(name.clone(), *node);
            }
            Self::Unlink(name) => {
                names.remove(name);
            }
            Self::Rename { from, to, node } => {
                if names.get(from) == Some(node) {
                    names.remove(from);
                }
                names.insert(to.clone(), *node);
            }
        }
    }
}

/// Which changes of names a power cut leaves.
#[derive(Debug, Clone, Copy)]
enum Journal {
    Lost,
    Kept,
    UpTo(u64),
    Any,
}

impl DirectoryNode {
    fn change(&mut self, number: u64, change: NameChange) {
        change.apply(&mut self.names);
        self.pending.push((number, change));
    }

    fn survivor(&self, journal: Journal, random: &mut Random) -> BTreeMap<String, NodeId> {
        let mut names = self.durable.clone();
        for (number, change) in &self.pending {
            let kept = match journal {
                Journal::Lost => false,
                Journal::Kept => true,
                Journal::UpTo(end) => *number < end,
                Journal::Any => random.one_in(2),
            };
            if kept {
                change.apply(&mut names);
            }
        }
        names
    }
}

/// What is asked of the image, by path.
impl Image {
    pub(super) fn find(&self, path: &Path) -> Option<NodeId> {
        let mut node = ROOT;
        for component in path.components() {
            if let Component::Normal(name) = component {
                let Some(Node::Directory(directory)) = self.nodes.get(&node) else {
                    return None;
                };
                node = *directory.names.get(name.to_str()?)?;
            }
        }
        Some(node)
    }

    pub(super) fn list(&self, path: &Path) -> io::Result<Vec<DirectoryEntry>> {
        let directory = self.directory(path)?;
        let mut names: Vec<_> = directory.names.iter().collect();
        names.sort_unstable_by_key(|(_, node)| **node); // names may hold a UUID
        let entry = |(name, node): (&String, &NodeId)| DirectoryEntry {
            name: name.clone(),
            is_directory: matches!(self.nodes.get(node), Some(Node::Directory(_))),
            bytes: self.content(*node).len() as u64,
            modified_ms: self.modified(*node),
        };
        Ok(names.into_iter().map(entry).collect())
    }

    pub(super) fn content(&self, node: NodeId) -> &[u8] {
        match self.nodes.get(&node) {
            Some(Node::File(file)) => &file.content,
            _ => &[],
        }
    }

    /// The file, made if it is not there; whether it was made.
    pub(super) fn open(&mut self, path: &Path, create: bool) -> io::Result<(NodeId, bool)> {
        if let Some(node) = self.find(path) {
            return Ok((node, false));
        }
        if !create {
            return Err(io::ErrorKind::NotFound.into());
        }
        let node = self.link(path, Node::File(FileNode::default()))?;
        self.touch(node);
        Ok((node, true))
    }

    pub(super) fn create_directory(&mut self, path: &Path) -> io::Result<()> {
        if self.find(path).is_some() {
            return Ok(());
        }
        if let Some(parent) = path.parent() {
            self.create_directory(parent)?;
        }
        self.link(path, Node::Directory(DirectoryNode::default()))?;
        Ok(())
    }

    pub(super) fn rename(&mut self, from: &Path, to: &Path) -> io::Result<()> {
        assert_eq!(from.parent(), to.parent(), "a rename to another directory");
        let node = self.find(from).ok_or(io::ErrorKind::NotFound)?;
        let change = NameChange::Rename {
            from: name_of(from),
            to: name_of(to),
            node,
        };
        self.change_names(from, change)
    }

    pub(super) fn remove_file(&mut self, path: &Path) -> io::Result<()> {
        self.find(path).ok_or(io::ErrorKind::NotFound)?;
        self.change_names(path, NameChange::Unlink(name_of(path)))
    }

    pub(super) fn remove_directory(&mut self, path: &Path) -> io::Result<()> {
        for entry in self.list(path)? {
            self.remove_file(&path.join(entry.name))?;
        }
        self.remove_file(path)
    }

    pub(super) fn sync_directory(&mut self, path: &Path) -> io::Result<()> {
        let directory = self.directory_mut(path)?;
        directory.durable = directory.names.clone();
        directory.pending.clear();
        Ok(())
    }

    pub(super) fn fail_directory_sync(&mut self, path: &Path, random: &mut Random) {
        if let Ok(directory) = self.directory_mut(path) {
            directory.durable = directory.survivor(Journal::Any, random);
            directory.pending.clear();
        }
    }

    pub(super) fn write(&mut self, node: NodeId, position: u64, bytes: &[u8]) {
        let position = usize::try_from(position).unwrap();
        let bytes = Arc::from(bytes);
        self.file(node).change(Change::Write { position, bytes });
        self.touch(node);
    }

    pub(super) fn truncate(&mut self, node: NodeId, length: u64) {
        let length = usize::try_from(length).unwrap();
        self.file(node).change(Change::Truncate(length));
        self.touch(node);
    }

    /// When the file was last written to.
    pub(super) fn modified(&self, node: NodeId) -> i64 {
        match self.nodes.get(&node) {
            Some(Node::File(file)) => file.modified,
            _ => 0,
        }
    }

    pub(super) fn touch(&mut self, node: NodeId) {
        self.ticks += 1;
        self.file(node).modified = self.ticks;
    }

    pub(super) fn sync(&mut self, node: NodeId) {
        self.file(node).sync();
    }

    pub(super) fn fail_sync(&mut self, node: NodeId, random: &mut Random) {
        self.file(node).fail_sync(random);
    }

    fn file(&mut self, node: NodeId) -> &mut FileNode {
        match self.nodes.get_mut(&node) {
            Some(Node::File(file)) => file,
            _ => panic!("node {node} is no file"),
        }
    }

    fn directory(&self, path: &Path) -> io::Result<&DirectoryNode> {
        match self.find(path).and_then(|node| self.nodes.get(&node)) {
            Some(Node::Directory(directory)) => Ok(directory),
            _ => Err(io::ErrorKind::NotFound.into()),
        }
    }

    fn directory_mut(&mut self, path: &Path) -> io::Result<&mut DirectoryNode> {
        let node = self.find(path);
        match node.and_then(|node| self.nodes.get_mut(&node)) {
            Some(Node::Directory(directory)) => Ok(directory),
            _ => Err(io::ErrorKind::NotFound.into()),
        }
    }

    fn link(&mut self, path: &Path, node: Node) -> io::Result<NodeId> {
        let id = self.next;
        self.change_names(path, NameChange::Link(name_of(path), id))?;
        self.next += 1;
        self.nodes.insert(id, node);
        Ok(id)
    }

    fn change_names(&mut self, path: &Path, change: NameChange) -> io::Result<()> {
        let number = self.journal;
        let parent = path.parent().ok_or(io::ErrorKind::NotFound)?;
        self.directory_mut(parent)?.change(number, change);
        self.journal += 1;
        Ok(())
    }
}

fn name_of(path: &Path) -> String {
    let name = path.file_name().and_then(|name| name.to_str());
    name.unwrap_or_default().to_owned()
}

/// How much a power cut takes.
impl Image {
    /// What a start finds after the power went. `forged`: checksums of batches in segments that came
    /// out of it damaged are right all the same, as if nobody looked at them.
    pub(crate) fn after_power_cut(&self, seed: u64, forged: bool) -> Self {
        let mut random = Random::new(seed);
        let journal = match random.below(8) {
            0 | 1 => Journal::Lost,
            2 | 3 => Journal::Kept,
            4 => Journal::UpTo(random.next() % (self.journal + 1)),
            // Most of the changes are old: around the last ones it is interesting.
            5 => Journal::UpTo(self.journal.saturating_sub(random.next() % 8)),
            _ => Journal::Any,
        };
        let mut image = self.clone();
        image.page_cache += 1;
        for (id, node) in &mut image.nodes {
            let mut random = Random::of(seed, *id);
            match node {
                Node::File(file) => {
                    file.durable = file.survivor(&mut random);
                    file.content = Arc::clone(&file.durable);
                    file.pending.clear();
                    file.failed = false;
                }
                Node::Directory(directory) => {
                    directory.durable = directory.survivor(journal, &mut random);
                    directory.names = directory.durable.clone();
                    directory.pending.clear();
                }
            }
        }
        image.drop_unreachable();
        if forged {
            image.forge_checksums(self);
        }
        image
    }

    /// What a start finds after the process was killed: the page cache lives on.
    pub(crate) fn after_kill(&self) -> Self {
        let mut image = self.clone();
        image.drop_unreachable();
        image
    }

    /// Leaves out what no name leads to, now or on the platter.
    fn drop_unreachable(&mut self) {
        let mut reached = BTreeMap::new();
        let mut next = vec![ROOT];
        while let Some(id) = next.pop() {
            let Some(node) = self.nodes.remove(&id) else {
                continue;
            };
            if let Node::Directory(directory) = &node {
                next.extend(directory.names.values());
                next.extend(directory.durable.values());
                for (_, change) in &directory.pending {
                    match change {
                        NameChange::Link(_, node) | NameChange::Rename { node, .. } => {
                            next.push(*node);
                        }
                        NameChange::Unlink(_) => {}
                    }
                }
            }
            reached.insert(id, node);
        }
        self.nodes = reached;
    }

    fn forge_checksums(&mut self, before: &Self) {
        let directories = self.nodes.values().filter_map(|node| match node {
            Node::Directory(directory) => Some(directory.names.iter()),
            Node::File(_) => None,
        });
        let segments: Vec<NodeId> = directories
            .flatten()
            .filter(|(name, _)| name.ends_with(".log"))
            .map(|(_, node)| *node)
            .collect();
        for node in segments {
            if self.content(node) == before.content(node) {
                continue;
            }
            let file = self.file(node);
            let mut content = file.content.to_vec();
            forge(&mut content);
            file.content = Arc::new(content);
            file.durable = Arc::clone(&file.content);
        }
    }
}

fn forge(mut batches: &mut [u8]) {
    while let Ok(header) = BatchHeader::parse(batches)
        && header.total_bytes() <= batches.len()
    {
        let (batch, rest) = batches.split_at_mut(header.total_bytes());
        let crc = crc_fast::crc32_iscsi(&batch[21..]);
        batch[17..21].copy_from_slice(&crc.to_be_bytes());
        batches = rest;
    }
}
