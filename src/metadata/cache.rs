//! The newest image, and who hears of it.

use std::sync::Arc;

use super::Image;
use crate::registry::Revision;

/// Applies a change of the image before anybody else can see the new one; must not block.
pub trait ImageListener: std::fmt::Debug + Send + Sync {
    fn image_changed(&self, old: &Image, new: &Arc<Image>);
}

/// Holds the newest image.
#[derive(Debug)]
pub struct MetadataCache {}

#[allow(unused_variables)]
impl MetadataCache {
    /// The newest image; cheap, never blocks.
    pub fn current(&self) -> Arc<Image> {
        unimplemented!()
    }
    /// Returns once the image has reached `revision`.
    pub async fn wait_for(&self, revision: Revision) {
        unimplemented!()
    }
    pub fn add_listener(&self, listener: Arc<dyn ImageListener>) {
        unimplemented!()
    }
}
