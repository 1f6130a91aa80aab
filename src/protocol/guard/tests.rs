use bytes::{Bytes, BytesMut};
use kafka_protocol::messages::{ApiKey, RequestKind};
use proptest::prelude::*;

use super::*;
use crate::protocol::wire::ELEMENTS_MAX;

/// Writes a body by its schema, every choice taken from `choices`, and remembers where counts and
/// lengths stand.
struct Author<'a> {
    walk: Walk,
    choices: &'a [u8],
    body: Vec<u8>,
    /// Position and bytes of each count or length.
    counts: Vec<(usize, usize)>,
}

impl<'a> Author<'a> {
    fn write(schema: &'static Schema, version: i16, choices: &'a [u8]) -> Self {
        let mut author = Self {
            walk: Walk {
                version,
                flexible: version >= schema.flexible,
            },
            choices,
            body: Vec::new(),
            counts: Vec::new(),
        };
        author.structure(schema.body);
        author
    }

    fn choose(&mut self, below: usize) -> usize {
        let Some((choice, rest)) = self.choices.split_first() else {
            return 0;
        };
        self.choices = rest;
        usize::from(*choice) % below
    }

    fn count(&mut self, count: usize, bytes: usize) {
        let bytes = if self.walk.flexible { 1 } else { bytes };
        self.counts.push((self.body.len(), bytes));
        match bytes {
            1 => self.body.push(count as u8 + 1),
            2 => self.body.extend((count as u16).to_be_bytes()),
            _ => self.body.extend((count as u32).to_be_bytes()),
        }
    }

    fn null(&mut self, bytes: usize) {
        if self.walk.flexible {
            self.body.push(0);
        } else {
            self.body.extend(vec![0xff; bytes]);
        }
    }

    fn structure(&mut self, fields: &'static [Field]) {
        for field in fields {
            if field.is_in(self.walk.version) && field.tag.is_none() {
                self.field(field);
            }
        }
        if self.walk.flexible {
            self.body.push(0);
        }
    }

    fn field(&mut self, field: &'static Field) {
        let width = match field.kind {
            Kind::String => 2,
            Kind::Group(_) => 1,
            _ => 4,
        };
        let nullable = field.is_nullable(self.walk.version);
        if nullable && !matches!(field.kind, Kind::Fixed(_)) && self.choose(3) == 0 {
            if matches!(field.kind, Kind::Group(_)) {
                self.body.push(0xff);
            } else {
                self.null(width);
            }
            return;
        }
        match field.kind {
            Kind::Fixed(bytes) => {
                // No field has a default that the codec insists on in versions without it.
                let byte = self.choose(2) as u8;
                let bytes = vec![byte; bytes];
                self.body.extend(bytes);
            }
            Kind::String | Kind::Bytes => {
                let length = self.choose(4);
                self.count(length, width);
                self.body.extend(&b"abcd"[..length]);
            }
            Kind::List(fields) => {
                let count = self.choose(3);
                self.count(count, width);
                for _ in 0..count {
                    self.structure(fields);
                }
            }
            Kind::Items(item) => {
                let count = self.choose(4);
                self.count(count, width);
                for _ in 0..count {
                    self.field(item);
                }
            }
            Kind::Group(fields) => {
                if nullable {
                    self.body.push(1);
                }
                self.structure(fields);
            }
        }
    }
}

/// All schemas and their versions that the codec has too.
fn in_codec() -> Vec<(ApiKey, &'static Schema, i16)> {
    let mut all = Vec::new();
    for schema in SCHEMAS {
        let api = ApiKey::try_from(schema.key).unwrap();
        let codec = api.valid_versions();
        assert!(
            codec.min >= schema.versions.0 && codec.max <= schema.versions.1,
            "{api:?}"
        );
        // What the codec claims and then refuses.
        let max = match api {
            ApiKey::OffsetCommit | ApiKey::OffsetFetch => 9,
            ApiKey::InitProducerId => 5,
            _ => codec.max,
        };
        for version in codec.min..=max {
            all.push((api, schema, version));
        }
    }
    all
}

#[test]
fn schemas_are_in_the_order_of_keys() {
    assert!(SCHEMAS.windows(2).all(|pair| pair[0].key < pair[1].key));
}

#[test]
fn what_is_not_known_is_refused() {
    for (key, version) in [(-1, 0), (74, -1), (3, 14), (0, 2), (i16::MAX, i16::MAX)] {
        assert_eq!(
            check(key, version, &[0; 64]),
            Err(MalformedBody::UnknownApi)
        );
    }
}

#[test]
fn every_version_has_a_body_that_the_codec_reads_to_its_end() {
    // All choices high: everything there, two elements each. All low: null and empty.
    for choices in [vec![0; 4096], vec![1; 4096], vec![2; 4096], vec![5; 4096]] {
        for (api, schema, version) in in_codec() {
            let body = Author::write(schema, version, &choices).body;
            let mut bytes = Bytes::from(body.clone());
            let request = RequestKind::decode(api, &mut bytes, version)
                .unwrap_or_else(|error| panic!("{api:?} v{version}: {error}: {body:02x?}"));
            assert!(bytes.is_empty(), "{api:?} v{version}: {bytes:02x?} left");
            let mut encoded = BytesMut::new();
            request.encode(&mut encoded, version).unwrap();
            assert_eq!(encoded, body, "{api:?} v{version}");
        }
    }
}

proptest! {
    #[test]
    fn what_the_codec_writes_passes(
        choices in proptest::collection::vec(any::<u8>(), 0..200),
        at in any::<proptest::sample::Index>(),
    ) {
        let all = in_codec();
        let (api, schema, version) = all[at.index(all.len())];
        let author = Author::write(schema, version, &choices);
        prop_assert!(check(schema.key, version, &author.body).is_ok(), "{:?}", api);
        let mut bytes = Bytes::from(author.body);
        let request = RequestKind::decode(api, &mut bytes, version).unwrap();
        let mut encoded = BytesMut::new();
        request.encode(&mut encoded, version).unwrap();
        prop_assert!(check(schema.key, version, &encoded).is_ok(), "{:?}", api);
    }

    /// The point of it all: what the guard lets through, the codec may read.
    #[test]
    fn no_count_is_believed(
        choices in proptest::collection::vec(any::<u8>(), 0..200),
        at in any::<proptest::sample::Index>(),
        which in any::<proptest::sample::Index>(),
    ) {
        let all = in_codec();
        let (_, schema, version) = all[at.index(all.len())];
        let author = Author::write(schema, version, &choices);
        if author.counts.is_empty() {
            return Ok(());
        }
        let (position, bytes) = author.counts[which.index(author.counts.len())];
        let claims: &[&[u8]] = match bytes {
            1 => &[
                &[0xff, 0xff, 0xff, 0xff, 0x0f],
                &[0xff, 0xff, 0xff, 0xff, 0x07],
                &[0x81, 0x80, 0x80, 0x80, 0x70],
                &[0x80, 0x80, 0x80, 0x80, 0x80, 0x01],
            ],
            2 => &[&[0x7f, 0xff], &[0x80, 0x00], &[0xff, 0xfe]],
            _ => &[&[0x7f, 0xff, 0xff, 0xff], &[0x80, 0, 0, 0], &[0xff, 0xff, 0xff, 0xfe]],
        };
        for claim in claims {
            let mut body = author.body.clone();
            body.splice(position..position + bytes, claim.iter().copied());
            prop_assert!(check(schema.key, version, &body).is_err(), "{:02x?}", body);
        }
    }

    #[test]
    fn a_body_cut_short_is_refused(
        choices in proptest::collection::vec(any::<u8>(), 0..200),
        at in any::<proptest::sample::Index>(),
        end in any::<proptest::sample::Index>(),
    ) {
        let all = in_codec();
        let (_, schema, version) = all[at.index(all.len())];
        let body = Author::write(schema, version, &choices).body;
        if !body.is_empty() {
            prop_assert!(check(schema.key, version, &body[..end.index(body.len())]).is_err());
        }
    }

    #[test]
    fn arbitrary_bytes_that_pass_do_not_hurt_the_codec(
        bytes in proptest::collection::vec(prop_oneof![0u8..4, any::<u8>()], 0..100),
    ) {
        for (api, schema, version) in in_codec() {
            if check(schema.key, version, &bytes).is_ok() {
                let _ = RequestKind::decode(api, &mut Bytes::copy_from_slice(&bytes), version);
            }
        }
    }
}

fn unhex(hex: &str) -> Vec<u8> {
    let digits: Vec<u8> = hex.bytes().filter(u8::is_ascii_hexdigit).collect();
    digits
        .chunks(2)
        .map(|pair| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap())
        .collect()
}

#[test]
fn counts_beyond_the_body() {
    // Metadata: 2³¹−1, −2 and one too many topics; an honest one; all topics.
    for (hex, result) in [
        ("7fffffff", Err(MalformedBody::Count)),
        ("fffffffe", Err(MalformedBody::NegativeLength)),
        ("00000002 0000", Err(MalformedBody::Count)),
        ("00000001 0000", Ok(BodyShape { elements: 1 })),
        ("ffffffff", Err(MalformedBody::Null)),
    ] {
        assert_eq!(check(3, 0, &unhex(hex)), result, "{hex}");
    }
    assert_eq!(
        check(3, 1, &unhex("ffffffff")),
        Ok(BodyShape { elements: 0 })
    );
    assert_eq!(
        check(3, 12, &unhex("ffffffff0f")),
        Err(MalformedBody::Count)
    );
    // Fetch v12 with 2³²−2 topics.
    let fetch = "ffffffff 00000000 00000000 00000000 00 00000000 00000000 ffffffff0f";
    assert_eq!(check(1, 12, &unhex(fetch)), Err(MalformedBody::Count));
    // One topic with 2³¹−1 partitions.
    let nested = "ffffffff 00000001 0001 61 7fffffff";
    assert_eq!(check(2, 1, &unhex(nested)), Err(MalformedBody::Count));
    // Produce of a dozen bytes.
    for (version, hex) in [
        (8, "ffff 0001 00000000 7fffffff"),
        (9, "00 0001 00000000 ffffffff0f"),
    ] {
        assert_eq!(check(0, version, &unhex(hex)), Err(MalformedBody::Count));
    }
}

#[test]
fn varints_that_readers_disagree_about() {
    for hex in ["8180808070", "808080808001"] {
        assert_eq!(
            check(3, 12, &unhex(hex)),
            Err(MalformedBody::Varint),
            "{hex}"
        );
    }
}

#[test]
fn null_where_it_cannot_be() {
    // Heartbeat v4: the group id.
    let body = unhex("00 00000001 0161 00 00");
    assert_eq!(check(12, 4, &body), Err(MalformedBody::Null));
    // LeaveGroup v3 and v4: the members; and none of them.
    assert_eq!(
        check(13, 3, &unhex("0000 ffffffff")),
        Err(MalformedBody::Null)
    );
    assert_eq!(
        check(13, 3, &unhex("0000 00000000")),
        Ok(BodyShape { elements: 0 })
    );
    assert_eq!(check(13, 4, &unhex("01 00 00")), Err(MalformedBody::Null));
    // TxnOffsetCommit v3: the topics.
    let body = unhex("01 01 0000000000000000 0000 00000000 01 00 00 00");
    assert_eq!(check(28, 3, &body), Err(MalformedBody::Null));
    // OffsetFetch: null topics are all topics from v2 on.
    assert_eq!(
        check(9, 1, &unhex("0000 ffffffff")),
        Err(MalformedBody::Null)
    );
    assert_eq!(
        check(9, 2, &unhex("0000 ffffffff")),
        Ok(BodyShape { elements: 0 })
    );
    // DescribeConfigs: null keys are all keys.
    let body = unhex("00000001 02 0000 ffffffff 00");
    assert_eq!(check(32, 1, &body), Ok(BodyShape { elements: 1 }));
}

#[test]
fn honest_arrays_have_a_bound_too() {
    // Four million empty topic names in 8 MiB.
    let mut body = 4_000_000i32.to_be_bytes().to_vec();
    body.resize(4 + 8_000_000, 0);
    assert_eq!(check(3, 0, &body), Err(MalformedBody::TooManyElements));
    body.truncate(4 + 2 * ELEMENTS_MAX);
    body[..4].copy_from_slice(&(ELEMENTS_MAX as i32).to_be_bytes());
    assert_eq!(
        check(3, 0, &body),
        Ok(BodyShape {
            elements: ELEMENTS_MAX
        })
    );
    // A million tags of no bytes behind a Metadata request.
    let mut body = unhex("01 00 00 00 808040");
    body.resize(body.len() + (2 << 20), 0);
    assert_eq!(check(3, 9, &body), Err(MalformedBody::TooManyElements));
    // A million protocols of a JoinGroup; one with 50 MiB of metadata is only long.
    let mut body = unhex("0000 00000000 0000 0000 000f4240");
    body.resize(body.len() + 6_000_000, 0);
    assert_eq!(check(11, 0, &body), Err(MalformedBody::TooManyElements));
    let mut body = unhex("0000 00000000 0000 0000 00000001 0000 03200000");
    body.resize(body.len() + (50 << 20), 0);
    assert_eq!(check(11, 0, &body), Ok(BodyShape { elements: 1 }));
    // A hundred thousand topics to create: many, but not too many to decode.
    let mut body = 100_000i32.to_be_bytes().to_vec();
    for _ in 0..100_000 {
        body.extend(unhex("0000 7fffffff 7fff 00000000 00000000"));
    }
    body.extend(unhex("00000000 00"));
    assert_eq!(check(19, 2, &body), Ok(BodyShape { elements: 100_000 }));
}

#[test]
fn huge_arrays_of_the_admin_requests() {
    for (key, version, hex) in [
        (8, 2, "0000 00000000 0000 ffffffffffffffff 7fffffff"), // OffsetCommit
        (9, 1, "0000 7fffffff"),                                // OffsetFetch
        (20, 1, "7fffffff"),                                    // DeleteTopics
        (24, 0, "0000 0000000000000000 0000 7fffffff"),         // AddPartitionsToTxn
        (32, 1, "7fffffff"),                                    // DescribeConfigs
        (32, 1, "00000001 02 0000 7fffffff 00"),
        (28, 0, "0000 0000 0000000000000000 0000 7fffffff"), // TxnOffsetCommit
        (19, 2, "00000001 0000 00000001 0001 7fffffff"),     // CreateTopics
    ] {
        assert_eq!(
            check(key, version, &unhex(hex)),
            Err(MalformedBody::Count),
            "{key} {hex}"
        );
    }
}

#[test]
fn tagged_fields_are_walked_by_their_schema() {
    let head = "00000000 00000000 00000000 00 00000000 00000000 01 01 01";
    let fetch = |tags: &str| check(1, 15, &unhex(&format!("{head} {tags}")));
    let state = "00000005 0000000000000007 00";
    assert_eq!(fetch("00"), Ok(BodyShape { elements: 0 }));
    assert_eq!(
        fetch(&format!("01 01 0d {state}")),
        Ok(BodyShape { elements: 1 })
    );
    // Longer, shorter and longer than the body.
    assert_eq!(
        fetch(&format!("01 01 0e {state} 00")),
        Err(MalformedBody::TagSize)
    );
    assert_eq!(fetch("01 01 02 0000"), Err(MalformedBody::Truncated));
    assert_eq!(fetch("01 05 ffffffff0f"), Err(MalformedBody::Truncated));
    // One that nobody knows.
    assert_eq!(fetch("01 05 02 abcd"), Ok(BodyShape { elements: 1 }));
}
