//! What can go wrong, in the words of Kafka's own clients. Pure.

use std::fmt;

use crate::types::ErrorCode;

/// Why a call failed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ClientError {
    /// A broker said so.
    Api { code: i16, message: Option<String> },
    /// A setting of the client's cannot be.
    Config(String),
    /// It took longer than `default.api.timeout.ms`.
    TimedOut(String),
    /// The broker has no version of an API that this client speaks.
    UnsupportedVersion(String),
    /// An answer that is none.
    Malformed(String),
}

impl ClientError {
    /// A code without a sentence.
    pub fn code(code: i16) -> Self {
        Self::Api {
            code,
            message: None,
        }
    }

    pub(crate) fn api(code: i16, message: Option<impl ToString>) -> Self {
        Self::Api {
            code,
            message: message.map(|message| message.to_string()),
        }
    }

    /// True if it is this error of a broker's.
    pub fn is(&self, expected: ErrorCode) -> bool {
        matches!(self, Self::Api { code, .. } if *code == expected.code())
    }

    /// The simple name of the exception that Kafka's client throws.
    pub fn exception(&self) -> String {
        match self {
            Self::Api { code, .. } => exception_name(*code),
            Self::Config(_) => "ConfigException".to_owned(),
            Self::TimedOut(_) => "TimeoutException".to_owned(),
            Self::UnsupportedVersion(_) => "UnsupportedVersionException".to_owned(),
            Self::Malformed(_) => "KafkaException".to_owned(),
        }
    }

    /// The exception with its package, as a stack trace begins.
    pub fn qualified_exception(&self) -> String {
        let package = match self {
            Self::Config(_) => "org.apache.kafka.common.config.",
            Self::Malformed(_) => "org.apache.kafka.common.",
            _ => "org.apache.kafka.common.errors.",
        };
        format!("{package}{}", self.exception())
    }

    /// True for what goes by itself: a leader that moves, a coordinator that loads.
    pub(crate) fn is_retriable(&self) -> bool {
        let Self::Api { code, .. } = self else {
            return false;
        };
        ErrorCode::from_code(*code).is_some_and(is_retriable)
    }
}

/// `Err` unless the code is 0.
pub(crate) fn checked(code: i16, message: Option<impl ToString>) -> Result<(), ClientError> {
    match code {
        0 => Ok(()),
        _ => Err(ClientError::api(code, message)),
    }
}

/// `Err` unless the code is 0, for answers without a sentence.
pub(crate) fn checked_code(code: i16) -> Result<(), ClientError> {
    checked(code, None::<&str>)
}

impl fmt::Display for ClientError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Api {
                message: Some(message),
                ..
            } => f.write_str(message),
            Self::Api { code, .. } => f.write_str(&sentence(*code)),
            Self::Config(what)
            | Self::TimedOut(what)
            | Self::UnsupportedVersion(what)
            | Self::Malformed(what) => f.write_str(what),
        }
    }
}

impl std::error::Error for ClientError {}

fn is_retriable(code: ErrorCode) -> bool {
    use ErrorCode as E;
    matches!(
        code,
        E::LeaderNotAvailable
            | E::NotLeaderOrFollower
            | E::RequestTimedOut
            | E::ReplicaNotAvailable
            | E::NetworkException
            | E::CoordinatorLoadInProgress
            | E::CoordinatorNotAvailable
            | E::NotCoordinator
            | E::NotController
            | E::NotEnoughReplicas
            | E::NotEnoughReplicasAfterAppend
            | E::KafkaStorageError
            | E::FencedLeaderEpoch
            | E::UnknownLeaderEpoch
            | E::OffsetNotAvailable
            | E::UnstableOffsetCommit
            | E::ThrottlingQuotaExceeded
            | E::ListenerNotFound
    )
}

/// The simple name of the exception that Kafka's client throws for a code.
pub fn exception_name(code: i16) -> String {
    use ErrorCode as E;
    let Some(code) = ErrorCode::from_code(code) else {
        return "UnknownServerException".to_owned();
    };
    let irregular = match code {
        E::UnknownServerError => "UnknownServerException",
        E::InvalidFetchSize => "InvalidFetchSizeException",
        E::CorruptMessage => "CorruptRecordException",
        E::RequestTimedOut => "TimeoutException",
        E::MessageTooLarge => "RecordTooLargeException",
        E::StaleControllerEpoch => "ControllerMovedException",
        E::OffsetMetadataTooLarge => "OffsetMetadataTooLarge",
        E::InvalidTopicException => "InvalidTopicException",
        E::RecordListTooLarge => "RecordBatchTooLargeException",
        E::TopicAlreadyExists => "TopicExistsException",
        E::InvalidConfig => "InvalidConfigurationException",
        E::OutOfOrderSequenceNumber => "OutOfOrderSequenceException",
        E::DuplicateSequenceNumber => "DuplicateSequenceException",
        E::InvalidProducerIdMapping => "InvalidPidMappingException",
        E::KafkaStorageError => "KafkaStorageException",
        E::NonEmptyGroup => "GroupNotEmptyException",
        E::SecurityDisabled => "SecurityDisabledException",
        other => return format!("{other:?}Exception"),
    };
    irregular.to_owned()
}

/// What Kafka's clients say for a code that comes without a sentence.
fn sentence(code: i16) -> String {
    use ErrorCode as E;
    let Some(known) = ErrorCode::from_code(code) else {
        return format!("The server answered with error code {code}.");
    };
    let text = match known {
        E::UnknownServerError => {
            "The server experienced an unexpected error when processing the request."
        }
        E::OffsetOutOfRange => {
            "The requested offset is not within the range of offsets maintained by the server."
        }
        E::UnknownTopicOrPartition => "This server does not host this topic-partition.",
        E::LeaderNotAvailable => {
            "There is no leader for this topic-partition as we are in the middle of a leadership election."
        }
        E::NotLeaderOrFollower => {
            "For requests intended only for the leader, this error indicates that the broker is not the current leader. For requests intended for any replica, this error indicates that the broker is not a replica of the topic partition."
        }
        E::RequestTimedOut => "The request timed out.",
        E::MessageTooLarge => {
            "The request included a message larger than the max message size the server will accept."
        }
        E::CoordinatorLoadInProgress => {
            "The coordinator is loading and hence can't process requests."
        }
        E::CoordinatorNotAvailable => "The coordinator is not available.",
        E::NotCoordinator => "This is not the correct coordinator.",
        E::InvalidTopicException => {
            "The request attempted to perform an operation on an invalid topic."
        }
        E::NotEnoughReplicas => {
            "Messages are rejected since there are fewer in-sync replicas than required."
        }
        E::UnknownMemberId => "The coordinator is not aware of this member.",
        E::RebalanceInProgress => "The group is rebalancing, so a rejoin is needed.",
        E::InvalidGroupId => "The group id is invalid.",
        E::TopicAlreadyExists => "Topic with this name already exists.",
        E::UnsupportedVersion => "The version of API is not supported.",
        E::SecurityDisabled => "Security features are disabled.",
        E::NonEmptyGroup => "The group is not empty.",
        E::GroupIdNotFound => "The group id does not exist.",
        E::GroupSubscribedToTopic => {
            "Deleting offsets of a topic is forbidden while the consumer group is actively subscribed to it."
        }
        E::UnknownTopicId => "This server does not host this topic ID.",
        E::InvalidRecord => {
            "This record has failed the validation on the broker and hence will be rejected."
        }
        E::KafkaStorageError => "Disk error when trying to access log file on the disk.",
        E::InvalidTimestamp => "The timestamp of the message is out of acceptable range.",
        other => return format!("{other:?} ({code})"),
    };
    text.to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exceptions_are_called_as_in_kafka() {
        let name = |code: ErrorCode| exception_name(code.code());
        assert_eq!(name(ErrorCode::TopicAlreadyExists), "TopicExistsException");
        assert_eq!(
            name(ErrorCode::UnknownTopicOrPartition),
            "UnknownTopicOrPartitionException"
        );
        assert_eq!(
            name(ErrorCode::InvalidTopicException),
            "InvalidTopicException"
        );
        assert_eq!(name(ErrorCode::GroupIdNotFound), "GroupIdNotFoundException");
        assert_eq!(exception_name(12_345), "UnknownServerException");
        let error = ClientError::api(36, Some("Topic 't' already exists."));
        assert!(error.is(ErrorCode::TopicAlreadyExists));
        assert_eq!(error.to_string(), "Topic 't' already exists.");
        assert_eq!(
            error.qualified_exception(),
            "org.apache.kafka.common.errors.TopicExistsException"
        );
        assert_eq!(
            ClientError::code(3).to_string(),
            "This server does not host this topic-partition."
        );
    }

    #[test]
    fn what_goes_by_itself_is_tried_again() {
        let retriable = |code: ErrorCode| ClientError::code(code.code()).is_retriable();
        assert!(retriable(ErrorCode::NotLeaderOrFollower));
        assert!(retriable(ErrorCode::CoordinatorLoadInProgress));
        assert!(!retriable(ErrorCode::InvalidConfig));
        assert!(!retriable(ErrorCode::None));
        assert!(!ClientError::TimedOut(String::new()).is_retriable());
        assert!(checked_code(0).is_ok() && checked_code(3).is_err());
    }
}
