//! What this broker believes about the cluster: an immutable image, replaced as the registry changes.

mod cache;
mod image;

pub use cache::{ImageListener, MetadataCache};
pub use image::{Broker, Endpoint, Image, Partition, Topic, is_internal};
