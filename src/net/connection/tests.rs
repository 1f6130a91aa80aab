use std::sync::atomic::{AtomicI64, AtomicUsize, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::io::DuplexStream;
use tokio::sync::oneshot;

use super::*;
use crate::net::{FrameBuffers, MemoryBudget, RequestSlots, Turn};
use crate::types::ListenerName;

/// Answers each frame as its first byte says: `r`eady, `l`ater (when released), `n`othing, `c`lose;
/// `b` is busy in its dispatch until it is released.
#[derive(Debug, Default)]
struct Scripted {
    dispatched: AtomicUsize,
    queued: AtomicI64,
    releases: Mutex<Vec<oneshot::Sender<()>>>,
}

fn response(body: Bytes) -> Response {
    vec![Chunk::Bytes(body)].into()
}

impl Service for Scripted {
    fn dispatch(
        &self,
        _peer: &PeerInfo,
        frame: Bytes,
        turn: Turn,
    ) -> BoxFuture<'static, Completion> {
        self.dispatched.fetch_add(1, Ordering::SeqCst);
        if frame[0] == b'b' {
            let (release, released) = oneshot::channel();
            self.releases.lock().push(release);
            return Box::pin(async move {
                let _turn = turn;
                match released.await {
                    Ok(()) => Completion::Ready(response(frame)),
                    Err(_) => Completion::Nothing,
                }
            });
        }
        let completion = match frame[0] {
            b'r' => Completion::Ready(response(frame)),
            b'l' => {
                let (release, released) = oneshot::channel();
                self.releases.lock().push(release);
                Completion::Later(Box::pin(async move {
                    released.await.ok()?;
                    Some(response(frame))
                }))
            }
            b'n' => Completion::Nothing,
            _ => Completion::Close("asked to".into()),
        };
        Box::pin(async move { completion })
    }

    fn connected(&self, _peer: &PeerInfo) {}
    fn disconnected(&self, _peer: &PeerInfo) {}
    fn refused(&self, _listener: &ListenerName) {}
    fn queued(&self, change: i64) {
        self.queued.fetch_add(change, Ordering::SeqCst);
    }
}

fn start(service: &Arc<Scripted>, shutdown: &CancellationToken) -> DuplexStream {
    start_with(service, shutdown, &RequestSlots::new(500))
}

fn start_with(
    service: &Arc<Scripted>,
    shutdown: &CancellationToken,
    requests: &RequestSlots,
) -> DuplexStream {
    let (client, server) = tokio::io::duplex(1 << 16);
    let peer = PeerInfo {
        listener: "PLAINTEXT".into(),
        address: ([127, 0, 0, 1], 1).into(),
        client: std::sync::Arc::default(),
    };
    let config = NetConfig {
        request_bytes_max: 1 << 20,
        idle_max: Duration::from_secs(600),
        in_flight_max: 5,
    };
    let service: Arc<dyn Service> = Arc::clone(service) as _;
    let budgets = Budgets {
        memory: MemoryBudget::new(16 << 20),
        requests: requests.clone(),
        frames: FrameBuffers::default(),
    };
    tokio::spawn(Connection::new(server, peer, service, config, budgets, shutdown.clone()).run());
    client
}

async fn read(client: &mut DuplexStream, bytes: usize) -> String {
    let mut buffer = vec![0; bytes];
    client.read_exact(&mut buffer).await.unwrap();
    String::from_utf8(buffer).unwrap()
}

async fn settle() {
    tokio::time::sleep(Duration::from_millis(1)).await;
}

#[tokio::test(start_paused = true)]
async fn answers_come_in_the_order_of_the_requests() {
    let service = Arc::new(Scripted::default());
    let mut client = start(&service, &CancellationToken::new());
    client
        .write_all(b"\0\0\0\x02l1\0\0\0\x02r2\0\0\0\x02n3\0\0\0\x02l4")
        .await
        .unwrap();
    settle().await;
    assert_eq!(
        service.dispatched.load(Ordering::SeqCst),
        4,
        "a late answer holds nobody up"
    );
    let [first, fourth] =
        <[_; 2]>::try_from(std::mem::take(&mut *service.releases.lock())).unwrap();
    fourth.send(()).unwrap();
    settle().await;
    first.send(()).unwrap();
    assert_eq!(read(&mut client, 6).await, "l1r2l4");
}

#[tokio::test(start_paused = true)]
async fn outstanding_requests_are_bounded() {
    let service = Arc::new(Scripted::default());
    let mut client = start(&service, &CancellationToken::new());
    client.write_all(&b"\0\0\0\x01l".repeat(10)).await.unwrap();
    settle().await;
    assert_eq!(service.dispatched.load(Ordering::SeqCst), 5);
    let release = service.releases.lock().remove(0);
    release.send(()).unwrap();
    settle().await;
    assert_eq!(service.dispatched.load(Ordering::SeqCst), 6);
}

#[tokio::test(start_paused = true)]
async fn outstanding_bytes_are_bounded() {
    let service = Arc::new(Scripted::default());
    let mut client = start(&service, &CancellationToken::new());
    // One request is taken whatever its size; the next waits for its answer.
    let large = [&(1u32 << 20).to_be_bytes()[..], &vec![b'l'; 1 << 20]].concat();
    let requests = large.repeat(5);
    tokio::spawn(async move {
        client.write_all(&requests).await.unwrap();
        std::future::pending::<()>().await;
        drop(client);
    });
    settle().await;
    assert_eq!(
        service.dispatched.load(Ordering::SeqCst),
        OUTSTANDING_BYTES_MAX >> 20
    );
}

#[tokio::test(start_paused = true)]
async fn a_frame_may_come_byte_by_byte_and_an_idle_peer_is_let_go() {
    let service = Arc::new(Scripted::default());
    let mut client = start(&service, &CancellationToken::new());
    for byte in b"\0\0\0\x02r1" {
        client.write_all(&[*byte]).await.unwrap();
        settle().await;
    }
    assert_eq!(read(&mut client, 2).await, "r1");
    // Half a frame, a byte now and then: that does not count as life.
    for _ in 0..3 {
        client.write_all(b"\0").await.unwrap();
        tokio::time::sleep(Duration::from_secs(250)).await;
    }
    assert_eq!(client.read(&mut [0; 1]).await.unwrap(), 0, "closed");
}

#[tokio::test(start_paused = true)]
async fn shutdown_answers_what_is_in_flight_and_takes_nothing_new() {
    let service = Arc::new(Scripted::default());
    let shutdown = CancellationToken::new();
    let mut client = start(&service, &shutdown);
    client.write_all(b"\0\0\0\x01l").await.unwrap();
    settle().await;
    shutdown.cancel();
    client.write_all(b"\0\0\0\x01r").await.unwrap();
    settle().await;
    assert_eq!(service.dispatched.load(Ordering::SeqCst), 1);
    service.releases.lock().remove(0).send(()).unwrap();
    assert_eq!(read(&mut client, 1).await, "l");
    assert_eq!(client.read(&mut [0; 1]).await.unwrap(), 0, "closed");
}

#[tokio::test(start_paused = true)]
async fn a_request_that_must_not_be_served_closes_the_connection() {
    let service = Arc::new(Scripted::default());
    for bad in [
        &b"\0\0\0\x01c"[..],
        b"\xff\xff\xff\xff",
        b"GET / HTTP/1.1\r\n\r\n",
    ] {
        let mut client = start(&service, &CancellationToken::new());
        client.write_all(bad).await.unwrap();
        assert_eq!(client.read(&mut [0; 1]).await.unwrap(), 0, "closed");
    }
}

#[tokio::test(start_paused = true)]
async fn file_ranges_are_sent_between_bytes() {
    let mut file = tempfile::tempfile().unwrap();
    std::io::Write::write_all(&mut file, &b"0123456789".repeat(20_000)).unwrap();
    let chunks = vec![
        Chunk::Bytes(Bytes::from_static(b"<")),
        Chunk::File {
            file: Arc::new(file),
            position: 5,
            bytes: 100_000,
            unreadable: Arc::default(),
        },
        Chunk::Bytes(Bytes::new()),
        Chunk::Bytes(Bytes::from_static(b">")),
    ];
    let (mut client, mut server) = tokio::io::duplex(100);
    let writer = tokio::spawn(async move { write_chunks(&mut server, chunks.into()).await });
    let got = read(&mut client, 100_002).await;
    writer.await.unwrap().unwrap();
    assert!(got.starts_with("<567890") && got.ends_with("34>"));
}

#[tokio::test(start_paused = true)]
async fn a_request_waits_while_as_many_as_may_be_are_handled() {
    let service = Arc::new(Scripted::default());
    let shutdown = CancellationToken::new();
    let requests = RequestSlots::new(2);
    let mut clients = [(); 4].map(|()| start_with(&service, &shutdown, &requests));
    // One that waits for something else than its turn holds nobody up.
    clients[0].write_all(b"\0\0\0\x02l0").await.unwrap();
    settle().await;
    for client in &mut clients[1..] {
        client.write_all(b"\0\0\0\x02b1").await.unwrap();
        settle().await;
    }
    assert_eq!(service.dispatched.load(Ordering::SeqCst), 3);
    assert_eq!(service.queued.load(Ordering::SeqCst), 1);
    let first = service.releases.lock().remove(1);
    first.send(()).unwrap();
    assert_eq!(read(&mut clients[1], 2).await, "b1");
    settle().await;
    assert_eq!(service.dispatched.load(Ordering::SeqCst), 4);
    assert_eq!(service.queued.load(Ordering::SeqCst), 0);
    // They come to their turn one after the other.
    for client in &mut clients[..2] {
        client.write_all(b"\0\0\0\x02b0").await.unwrap();
    }
    settle().await;
    assert_eq!(service.queued.load(Ordering::SeqCst), 2);
    for left in [1, 0] {
        service.releases.lock().remove(1).send(()).unwrap();
        settle().await;
        assert_eq!(service.queued.load(Ordering::SeqCst), left);
    }
}

#[tokio::test(start_paused = true)]
async fn large_frames_come_whole_however_they_are_cut_and_the_next_one_is_not_lost() {
    let service = Arc::new(Scripted::default());
    let mut client = start(&service, &CancellationToken::new());
    let frame = |bytes: usize, mark: u8| {
        let mut frame = u32::try_from(bytes).unwrap().to_be_bytes().to_vec();
        frame.push(b'r');
        frame.extend((1..bytes).map(|at| mark.wrapping_add(u8::try_from(at % 251).unwrap())));
        frame
    };
    for (round, bytes) in [4_090, 60_000, 70_000, 300_000, 65_532, 900_000]
        .into_iter()
        .enumerate()
    {
        let mark = u8::try_from(round).unwrap();
        let large = frame(bytes, mark);
        let small = frame(10, mark);
        let (mut reader, mut writer) = tokio::io::split(&mut client);
        let sent = [large.clone(), small.clone()].concat();
        let write = async {
            for piece in sent.chunks(50_021) {
                writer.write_all(piece).await.unwrap();
                settle().await;
            }
        };
        let mut answered = vec![0; large.len() + small.len() - 8];
        let (_, read) = tokio::join!(write, reader.read_exact(&mut answered));
        read.unwrap();
        assert!(answered[..bytes] == large[4..], "{bytes}");
        assert_eq!(answered[bytes..], small[4..]);
    }
}
