//! Bytes of a socket: frames are cut out of them whatever way they arrive, and their headers are read.
#![no_main]

use bytes::{Bytes, BytesMut};
use libfuzzer_sys::fuzz_target;
use ottla::protocol::RequestHeader;
use ottla::protocol::frame::{self, Frame};
use ottla::protocol::request::parse_client_id;

const BYTES_MAX: usize = 1 << 20;

/// All frames of `bytes`, fed `step` bytes at a time; the second is false if the stream was refused.
fn frames(bytes: &[u8], step: usize) -> (Vec<Bytes>, bool) {
    let mut buffer = BytesMut::new();
    let mut found = Vec::new();
    for piece in bytes.chunks(step) {
        buffer.extend_from_slice(piece);
        loop {
            match frame::next(&mut buffer, BYTES_MAX) {
                Ok(Frame::Complete(frame)) => found.push(frame),
                Ok(Frame::Incomplete { .. }) => break,
                Err(_) => return (found, false),
            }
        }
    }
    (found, true)
}

fuzz_target!(|bytes: &[u8]| {
    let (whole, accepted) = frames(bytes, usize::MAX);
    let (trickled, trickle_accepted) = frames(bytes, 1);
    assert_eq!((&whole, accepted), (&trickled, trickle_accepted));
    for mut frame in whole {
        if RequestHeader::parse(&mut frame).is_ok() {
            for version in 0..=2 {
                let _ = parse_client_id(&mut frame.clone(), version);
            }
        }
    }
});
