//! Kafka's rule of topic names, for requests that name topics which need not exist.

use crate::types::{ApiError, ErrorCode};

const NAME_LENGTH_MAX: usize = 249;

/// INVALID_TOPIC_EXCEPTION with Kafka's sentence.
pub(super) fn check(name: &str) -> Result<(), ApiError> {
    let legal = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'_' | b'-');
    let reason = match name {
        "" => "the empty string is not allowed".to_string(),
        "." | ".." => format!("'{name}' is not allowed"),
        // Java counts UTF-16 units.
        _ if name.encode_utf16().count() > NAME_LENGTH_MAX => format!(
            "the length of '{name}' is longer than the max allowed length {NAME_LENGTH_MAX}"
        ),
        _ if !name.bytes().all(legal) => format!(
            "'{name}' contains one or more characters other than ASCII alphanumerics, '.', '_' and '-'"
        ),
        _ => return Ok(()),
    };
    Err(ApiError::new(
        ErrorCode::InvalidTopicException,
        format!("Topic name is invalid: {reason}"),
    ))
}
