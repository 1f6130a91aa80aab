//! What a page of metrics costs where there is much to tell: how long it takes, and how large it is.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};

use super::{Figure, Process, create_topic, now};

const TOPICS: usize = 100;
const PARTITIONS_EACH: i32 = 100;
/// Of so many pages the median counts.
const PAGES: usize = 15;

/// Another broker has no such page.
pub fn measure(command: &str) -> Vec<Figure> {
    const OFF: &str = "metrics.listeners=";
    let names = [
        "/metrics at 10,000 partitions, ms",
        "/metrics at 10,000 partitions, MiB",
    ];
    if !command.contains(OFF) {
        return names.map(|name| (name, f64::NAN)).to_vec();
    }
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let port = listener.local_addr().unwrap().port();
    drop(listener);
    let process = Process::start(&command.replace(OFF, &format!("{OFF}127.0.0.1:{port}")));
    process.first_produce();
    let mut client = process.connect();
    for topic in 0..TOPICS {
        create_topic(
            &mut client,
            &format!("orders-{topic}"),
            PARTITIONS_EACH,
            None,
        )
        .unwrap();
    }
    let mut times = Vec::new();
    let mut bytes = 0;
    for _ in 0..PAGES {
        let start = now();
        let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port)).unwrap();
        stream.write_all(b"GET /metrics HTTP/1.1\r\n\r\n").unwrap();
        let mut page = Vec::new();
        stream.read_to_end(&mut page).unwrap();
        times.push(start.elapsed().as_secs_f64() * 1e3);
        bytes = page.len();
    }
    times.sort_by(f64::total_cmp);
    vec![
        (names[0], times[times.len() / 2]),
        (names[1], bytes as f64 / f64::from(1 << 20)),
    ]
}
