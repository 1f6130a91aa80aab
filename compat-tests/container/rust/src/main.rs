//! Testcontainers for Rust with the image in Kafka's place. Arguments: the image's name and tag.

use std::collections::BTreeMap;
use std::error::Error;
use std::time::Duration;

use rskafka::client::ClientBuilder;
use rskafka::client::partition::{Compression, UnknownTopicHandling};
use rskafka::record::Record;
use testcontainers_modules::kafka::apache;
use testcontainers_modules::testcontainers::core::ContainerPort;
use testcontainers_modules::testcontainers::runners::AsyncRunner;
use testcontainers_modules::testcontainers::{Image, ImageExt};

type Outcome = Result<(), Box<dyn Error>>;

/// As in the module's own test: five messages go in and come out in their order.
async fn messages_pass(bootstrap: String) -> Outcome {
    let client = ClientBuilder::new(vec![bootstrap]).build().await?;
    client
        .controller_client()?
        .create_topic("test-topic", 1, 1, 5_000)
        .await?;
    let partition = client
        .partition_client("test-topic", 0, UnknownTopicHandling::Retry)
        .await?;
    let message = |number: i64| Record {
        key: Some(format!("Key {number}").into_bytes()),
        value: Some(format!("Message {number}").into_bytes()),
        headers: BTreeMap::new(),
        timestamp: chrono::DateTime::UNIX_EPOCH,
    };
    for number in 0..5 {
        partition
            .produce(vec![message(number)], Compression::NoCompression)
            .await?;
    }
    let mut next = 0;
    while next < 5 {
        let (records, _) = partition.fetch_records(next, 1..1_000_000, 1_000).await?;
        for found in records {
            if found.record.value != message(next).value {
                return Err(format!("offset {next}: {:?}", found.record.value).into());
            }
            next += 1;
        }
    }
    Ok(())
}

async fn with<I: Image>(
    image: impl ImageExt<I> + Send,
    name: &str,
    tag: &str,
    port: ContainerPort,
) -> Outcome
where
    testcontainers_modules::testcontainers::ContainerRequest<I>: AsyncRunner<I>,
{
    let container = image.with_name(name).with_tag(tag).start().await?;
    let port = container.get_host_port_ipv4(port).await?;
    tokio::time::timeout(
        Duration::from_secs(20),
        messages_pass(format!("127.0.0.1:{port}")),
    )
    .await?
}

fn told(what: &str, outcome: Outcome) -> bool {
    match &outcome {
        Ok(()) => println!("ok  rust {what}"),
        Err(error) => println!("FAIL rust {what}: {error}"),
    }
    outcome.is_ok()
}

#[tokio::main]
async fn main() {
    let mut arguments = std::env::args().skip(1);
    let (name, tag) = (arguments.next().unwrap(), arguments.next().unwrap());
    let native = with(apache::Kafka::default(), &name, &tag, apache::KAFKA_PORT).await;
    let jvm = apache::Kafka::default().with_jvm_image();
    let jvm = with(jvm, &name, &tag, apache::KAFKA_PORT).await;
    let fine = [
        told("kafka::apache in place of apache/kafka-native", native),
        told("kafka::apache in place of apache/kafka", jvm),
    ];
    std::process::exit(i32::from(fine.contains(&false)));
}
