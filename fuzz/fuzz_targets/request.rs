//! Bodies of every API and version: what the guard lets through, the codec must survive in bounded
//! memory (run with `-rss_limit_mb=512 -malloc_limit_mb=64`), and our own readers must agree with it.
#![no_main]

use bytes::Bytes;
use kafka_protocol::messages::{ApiKey, RequestKind};
use libfuzzer_sys::fuzz_target;
use ottla::protocol::fetch::FetchRequest;
use ottla::protocol::guard;
use ottla::protocol::produce::ProduceRequest;

fuzz_target!(|bytes: &[u8]| {
    let [key, version, body @ ..] = bytes else {
        return;
    };
    let (key, version) = (i16::from(*key), i16::from(*version));
    let body = Bytes::copy_from_slice(body);
    let guarded = guard::check(key, version, &body);
    let ours = match key {
        0 => ProduceRequest::decode(&body, version).is_ok(),
        1 => FetchRequest::decode(&body, version).is_ok(),
        _ => false,
    };
    if guarded.is_err() {
        // Versions that nobody serves aside, our own readers are no more lenient than the guard.
        assert!(!ours || guarded == Err(ottla::protocol::MalformedBody::UnknownApi));
        return;
    }
    let Ok(api) = ApiKey::try_from(key) else {
        return;
    };
    let read = RequestKind::decode(api, &mut body.clone(), version).is_ok();
    assert!(ours || key > 1 || !read, "the codec reads what we do not");
});
