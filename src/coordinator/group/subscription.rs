//! The topics in a consumer's JoinGroup metadata (`ConsumerProtocolSubscription`). Pure.

use std::collections::BTreeSet;

use crate::types::TopicName;

/// Reads the topics of a subscription. Version 0 (topics, then nullable user data) is a prefix of every
/// later one, so the rest does not matter; `None` where the bytes are something else.
pub(super) fn topics(metadata: &[u8]) -> Option<BTreeSet<TopicName>> {
    let (version, rest) = metadata.split_first_chunk::<2>()?;
    if i16::from_be_bytes(*version) < 0 {
        return None;
    }
    let (count, mut rest) = rest.split_first_chunk::<4>()?;
    let mut topics = BTreeSet::new();
    for _ in 0..u32::try_from(i32::from_be_bytes(*count)).ok()? {
        let (length, behind) = rest.split_first_chunk::<2>()?;
        let length = usize::try_from(i16::from_be_bytes(*length)).ok()?;
        let (name, behind) = behind.split_at_checked(length)?;
        topics.insert(TopicName::from(std::str::from_utf8(name).ok()?));
        rest = behind;
    }
    let (length, user_data) = rest.split_first_chunk::<4>()?;
    let is_whole = usize::try_from(i32::from_be_bytes(*length))
        .map_or(true, |length| length <= user_data.len());
    is_whole.then_some(topics)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn topics_of_a_subscription_are_read_and_garbage_is_not() {
        let v1 = b"\0\x01\0\0\0\x02\0\x01b\0\x01a\xff\xff\xff\xff\0\0\0\0";
        let names: Vec<_> = topics(v1).unwrap().into_iter().collect();
        assert_eq!(names, ["a".into(), "b".into()] as [TopicName; 2]);
        assert_eq!(topics(b""), None);
        assert_eq!(topics(b"\xff\xff\0\0\0\0"), None);
        assert_eq!(topics(b"\0\0\x7f\xff\xff\xff"), None);
        assert_eq!(topics(b"\0\0\xff\xff\xff\xff"), None);
        assert_eq!(topics(b"\0\0\0\0\0\x01\0\x09a"), None);
        assert_eq!(topics(b"\0\0\0\0\0\0"), None, "no user data, not even null");
        assert_eq!(topics(b"\0\0\0\0\0\0\0\0\0\x02x"), None);
        assert_eq!(topics(b"\0\0\0\0\0\0\0\0\0\0"), Some(BTreeSet::new()));
    }
}
