//! Who leads what, and the admin transactions.

mod admin;

pub use admin::{
    Admin, ConfigMap, ConfigResource, CreatedTopic, NewPartitions, NewTopic, TopicReference,
};
