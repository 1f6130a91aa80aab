//! What this broker believes about the cluster: an immutable image, replaced as the registry changes.

mod cache;
mod delta;
mod image;
mod resolver;
mod watcher;

pub use cache::{ImageListener, MetadataCache};
pub use delta::{initial as initial_partition, partition as partition_of, value_of};
pub use image::{Broker, Endpoint, Image, Partition, Topic};
pub use resolver::{Resolver, ResolverAt};
pub use watcher::{Watcher, read_image};
