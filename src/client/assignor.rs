//! Kafka's range assignor: of each topic, each of its consumers gets a run of partitions. Pure.

use std::collections::BTreeMap;

/// Topics of each member; partitions of each topic. Returns each member's partitions, by topic.
pub(super) fn assign(
    subscriptions: &BTreeMap<String, Vec<String>>,
    partitions: &BTreeMap<String, i32>,
) -> BTreeMap<String, BTreeMap<String, Vec<i32>>> {
    let mut assigned: BTreeMap<String, BTreeMap<String, Vec<i32>>> = BTreeMap::new();
    for member in subscriptions.keys() {
        assigned.insert(member.clone(), BTreeMap::new());
    }
    for (topic, &count) in partitions {
        let interested = subscriptions
            .iter()
            .filter(|(_, topics)| topics.contains(topic));
        let members: Vec<&String> = interested.map(|(member, _)| member).collect();
        let Ok(consumers @ 1..) = i32::try_from(members.len()) else {
            continue;
        };
        let (each, more) = (count / consumers, count % consumers);
        let mut next = 0;
        for (index, member) in (0..).zip(members) {
            let end = next + each + i32::from(index < more);
            if let Some(topics) = assigned.get_mut(member)
                && end > next
            {
                topics.insert(topic.clone(), (next..end).collect());
            }
            next = end;
        }
    }
    assigned
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_members_get_one_more() {
        let topics = |names: &[&str]| names.iter().map(ToString::to_string).collect::<Vec<_>>();
        let subscriptions = BTreeMap::from([
            ("a".to_owned(), topics(&["t", "u"])),
            ("b".to_owned(), topics(&["t"])),
            ("c".to_owned(), topics(&["none"])),
        ]);
        let partitions = BTreeMap::from([("t".to_owned(), 3), ("u".to_owned(), 1)]);
        let assigned = assign(&subscriptions, &partitions);
        assert_eq!(assigned["a"]["t"], [0, 1]);
        assert_eq!(assigned["a"]["u"], [0]);
        assert_eq!(assigned["b"], BTreeMap::from([("t".to_owned(), vec![2])]));
        assert!(assigned["c"].is_empty());
    }
}
