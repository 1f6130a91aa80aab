//! Listeners as people write them, and those that cannot work.

use super::*;

/// Names, bound and advertised addresses of the listeners of `text`.
fn listeners(text: &str) -> Vec<String> {
    let config = file(text).unwrap().config;
    let listeners = config.listeners.iter();
    listeners
        .map(|l| {
            format!(
                "{} {}:{} {}:{}",
                l.name, l.host, l.port, l.advertised_host, l.advertised_port
            )
        })
        .collect()
}

#[test]
fn listeners_are_read_as_testcontainers_and_compose_files_write_them() {
    assert_eq!(
        listeners(
            "listeners=PLAINTEXT://0.0.0.0:9092,BROKER://0.0.0.0:9093,CONTROLLER://0.0.0.0:9094\n\
             controller.listener.names=CONTROLLER\n\
             listener.security.protocol.map=BROKER:PLAINTEXT,PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT\n\
             advertised.listeners=PLAINTEXT://localhost:32768,BROKER://abc123:9093,\n\
             inter.broker.listener.name=BROKER\n"
        ),
        [
            "PLAINTEXT 0.0.0.0:9092 localhost:32768",
            "BROKER 0.0.0.0:9093 abc123:9093"
        ]
    );
    assert_eq!(
        listeners(
            "listeners=PLAINTEXT://:9092, tc-0://[::1]:19092\n\
             listener.security.protocol.map=PLAINTEXT:PLAINTEXT,tc-0:plaintext\n\
             advertised.listeners=PLAINTEXT://kafka-1.local:9092,TC-0://host.docker.internal:7\n"
        ),
        [
            "PLAINTEXT :9092 kafka-1.local:9092",
            "TC-0 ::1:19092 host.docker.internal:7"
        ]
    );
    assert_eq!(
        listeners("listeners=PLAINTEXT://127.0.0.1:0"),
        ["PLAINTEXT 127.0.0.1:0 127.0.0.1:0"]
    );
    let unnamed = listeners("listeners=PLAINTEXT://:9092");
    assert!(unnamed[0].starts_with("PLAINTEXT :9092 "), "{unnamed:?}");
    assert!(
        !unnamed[0].ends_with(" :9092"),
        "the machine's name is told: {unnamed:?}"
    );
    let inter = file(
        "listeners=A://127.0.0.1:1,B://127.0.0.1:2\ninter.broker.listener.name=b\n\
         listener.security.protocol.map=A:PLAINTEXT,B:PLAINTEXT\n",
    );
    assert_eq!(&*inter.unwrap().config.inter_broker_listener, "B");
}

#[test]
fn listeners_that_cannot_work_are_refused() {
    let cases = [
        ("listeners=PLAINTEXT://0.0.0.0:9092", "meta-address 0.0.0.0"),
        (
            "listeners=PLAINTEXT://:9092\nadvertised.listeners=PLAINTEXT://0.0.0.0:9092",
            "meta-address 0.0.0.0",
        ),
        ("listeners=", "name at least one listener"),
        (
            "listeners=CONTROLLER://:9093\ncontroller.listener.names=CONTROLLER",
            "name at least one listener",
        ),
        (
            "listeners=PLAINTEXT:9092",
            "not of the form NAME://host:port",
        ),
        (
            "listeners=PLAINTEXT://a:b:9092",
            "not of the form NAME://host:port",
        ),
        (
            "listeners=PLAINTEXT://:99999",
            "not of the form NAME://host:port",
        ),
        (
            "listeners=PLAINTEXT://:1,PLAINTEXT://:2",
            "listener name PLAINTEXT occurs twice",
        ),
        (
            "listeners=PLAINTEXT://:1,X://:1\nlistener.security.protocol.map=X:PLAINTEXT",
            "port 1 occurs twice",
        ),
        (
            "listeners=EXTRA://127.0.0.1:1",
            "add EXTRA:PLAINTEXT to listener.security",
        ),
        (
            "listeners=PLAINTEXT://:1\nadvertised.listeners=OTHER://h:1",
            "listener OTHER is not among `listeners`",
        ),
        (
            "listeners=PLAINTEXT://:1\nlistener.security.protocol.map=PLAINTEXT:TLS",
            "not of the form NAME:PROTOCOL",
        ),
        (
            "listeners=PLAINTEXT://:1\ninter.broker.listener.name=NOPE",
            "name one of the listeners",
        ),
        (
            "inter.broker.listener.name=PLAINTEXT\nsecurity.inter.broker.protocol=PLAINTEXT",
            "only one of this key",
        ),
    ];
    for (text, part) in cases {
        let message = refused(text);
        assert!(message.contains(part), "{text}: {message}");
    }
}

#[test]
fn security_protocols_are_refused_by_name() {
    for protocol in ["SSL", "SASL_PLAINTEXT", "SASL_SSL"] {
        let direct = refused(&format!("listeners={protocol}://127.0.0.1:9092"));
        assert!(direct.contains(&format!(
            "security protocol {protocol} is not supported yet"
        )));
        let mapped = refused(&format!(
            "listeners=X://127.0.0.1:9092\nlistener.security.protocol.map=X:{protocol}"
        ));
        assert!(mapped.contains(&format!(
            "security protocol {protocol} is not supported yet"
        )));
        let brokers = refused(&format!("security.inter.broker.protocol={protocol}"));
        assert!(brokers.starts_with(&format!("security.inter.broker.protocol={protocol}: ")));
    }
}

#[test]
fn metrics_listeners_are_optional_and_many() {
    let of = |text: &str| {
        let config = file(text).unwrap().config;
        let ports: Vec<_> = config
            .metrics_listeners
            .iter()
            .map(|l| (l.host.clone(), l.port))
            .collect();
        (ports, config.metrics_listeners_configured)
    };
    assert_eq!(of(""), (vec![("127.0.0.1".to_string(), 9404)], false));
    assert_eq!(of("metrics.listeners="), (vec![], true));
    assert_eq!(
        of("metrics.listeners=HTTP://:9404,127.0.0.1:0"),
        (
            vec![(String::new(), 9404), ("127.0.0.1".to_string(), 0)],
            true
        )
    );
}
