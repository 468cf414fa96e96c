//! Disks that are full, read-only, or hold damaged files.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use corelog_tests::broker::{Broker, Options};
use corelog_tests::http::Connection;
use corelog_tests::scratch::Scratch;
use corelog_tests::{message_api, power_cut};

use super::{Disk, read_some};

fn publish_until_refused(http: &mut Connection, topic: &str) -> usize {
    let payload = "x".repeat(100_000);
    let messages: Vec<(&str, &str)> = (0..20).map(|_| ("key", payload.as_str())).collect();
    for published in 0..1_000 {
        if message_api::publish(http, topic, &messages).is_err() {
            return published;
        }
    }
    panic!("a full disk refuses nothing");
}

/// How many of the first messages of a topic a new group reads, once the partition is served; 0 if it never is.
fn read_once_served(broker: &Broker, group: &str, topic: &str) -> usize {
    for _ in 0..200 {
        std::thread::sleep(Duration::from_millis(50));
        let read = Connection::open(&broker.http_address())
            .and_then(|mut http| message_api::fetch(&mut http, group, topic, 10, 200));
        if let Ok(messages) = read {
            return messages.len();
        }
    }
    0
}

#[test]
#[ignore = "needs the release binary, /dev/fuse and the right to mount: ./test --only crashes"]
fn full_disk_then_restart_serves_and_deletes() {
    let disk = Disk::new(power_cut::Options::default());
    let mut broker = disk.start_broker();
    let mut http = Connection::open(&broker.http_address()).unwrap();
    message_api::create_topic(&mut http, "kept", 1).unwrap();
    message_api::create_topic(&mut http, "filler", 1).unwrap();
    message_api::publish(&mut http, "kept", &[("key", "before it was full")]).unwrap();
    // So little that the last byte may be written before the broker looks at the room again.
    disk.power().limit_free_bytes(Some(8 << 20));
    let published = publish_until_refused(&mut http, "filler");
    disk.power().limit_free_bytes(Some(0));
    eprintln!("refused after {published} publishes of 2 MB with 8 MiB free");
    assert_eq!(
        read_some(&mut http, "g1", "kept"),
        1,
        "a full broker serves"
    );

    // A full broker is not ready, which asks for publishes; it serves all the same.
    broker.kill9().unwrap();
    broker.spawn().unwrap();
    let kept = read_once_served(&broker, "g2", "kept");
    assert_eq!(kept, 1, "a full broker starts and serves");
    let mut http = Connection::open(&broker.http_address()).unwrap();
    if published > 0 {
        assert!(read_some(&mut http, "g2", "filler") > 0);
    }
    let deleted = http.request("DELETE", "/v1/topics/filler", b"").unwrap();
    assert_eq!(deleted.status, 204, "a full broker deletes");

    disk.power().limit_free_bytes(None);
    let writable = (0..200).any(|_| {
        std::thread::sleep(Duration::from_millis(50));
        message_api::publish(&mut http, "kept", &[("key", "there is room again")]).is_ok()
    });
    // A write that the full disk refused is final for its log until the next start.
    if !writable {
        broker.stop().unwrap();
        broker.restart().unwrap();
        http = Connection::open(&broker.http_address()).unwrap();
        message_api::publish(&mut http, "kept", &[("key", "there is room again")]).unwrap();
    }
    assert_eq!(read_some(&mut http, "g3", "kept"), 2);
}

/// The files below a directory of this name.
fn files_named(directory: &Path, name: &str) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            found.extend(files_named(&path, name));
        } else if path.file_name().is_some_and(|file| file == name) {
            found.push(path);
        }
    }
    found.sort();
    found
}

/// The broker does not start, and says why.
fn assert_refuses_to_start(broker: &mut Broker, what: &str) {
    let log_before = fs::metadata(broker.log_path()).map_or(0, |file| file.len()) as usize;
    let refused = broker.restart();
    assert!(refused.is_err(), "it started with a damaged {what}");
    let _ = broker.kill9();
    let log = fs::read(broker.log_path()).unwrap();
    let said = String::from_utf8_lossy(&log[log_before.min(log.len())..]).into_owned();
    assert!(said.contains(what), "it did not name {what}:\n{said}");
    assert!(
        !said.contains("panicked"),
        "it broke instead of refusing:\n{said}"
    );
}

#[test]
#[ignore = "needs the release binary: ./test --only crashes"]
fn damaged_meta_is_refused_not_emptied() {
    let mut broker = Broker::start(Options::default()).unwrap();
    let mut http = Connection::open(&broker.http_address()).unwrap();
    message_api::create_topic(&mut http, "orders", 1).unwrap();
    message_api::create_topic(&mut http, "other", 1).unwrap();
    for topic in ["orders", "other"] {
        message_api::publish(&mut http, topic, &[("key", "payload")]).unwrap();
    }
    assert!(broker.stop().unwrap().success());
    let data = broker.data_directory();

    for (name, what) in [
        ("corelog.identity", "identity"),
        ("metadata.redb", "metadata"),
    ] {
        let [path] = files_named(&data, name).try_into().unwrap();
        let good = fs::read(&path).unwrap();
        for bad in [vec![0xff; good.len()], vec![0; good.len()], Vec::new()] {
            fs::write(&path, bad).unwrap();
            assert_refuses_to_start(&mut broker, what);
        }
        fs::remove_file(&path).unwrap();
        assert_refuses_to_start(&mut broker, what);
        fs::write(&path, good).unwrap();
    }

    // One partition's state: that partition alone is out of service.
    let states = files_named(&data.join("topics"), "state");
    let good: Vec<_> = states
        .iter()
        .map(|path| (path, fs::read(path).unwrap()))
        .collect();
    assert!(good.len() >= 2);
    for (path, state) in &good {
        fs::write(path, vec![0xff; state.len()]).unwrap();
        broker.restart().unwrap();
        let mut http = Connection::open(&broker.http_address()).unwrap();
        let served = ["orders", "other"].map(|topic| {
            let read = message_api::fetch(&mut http, "group", topic, 10, 200);
            read.is_ok_and(|messages| messages.len() == 1)
        });
        let refused = served.iter().filter(|served| !**served).count();
        assert!(refused <= 1, "one damaged file stopped both topics");
        broker.stop().unwrap();
        assert_eq!(
            fs::read(path).unwrap(),
            vec![0xff; state.len()],
            "the damaged file was changed"
        );
        fs::write(path, state).unwrap();
    }

    broker.restart().unwrap();
    let mut http = Connection::open(&broker.http_address()).unwrap();
    for topic in ["orders", "other"] {
        assert_eq!(
            read_some(&mut http, "again", topic),
            1,
            "{topic} was emptied"
        );
    }
}

/// Mounts a directory onto itself, so that it can be made read-only, and takes that back when dropped.
struct BindMount<'p>(&'p Path);

impl<'p> BindMount<'p> {
    fn new(path: &'p Path) -> Self {
        mount(&["--bind", path.to_str().unwrap(), path.to_str().unwrap()]);
        Self(path)
    }

    fn remount(&self, option: &str) {
        mount(&[
            "-o",
            &format!("remount,bind,{option}"),
            self.0.to_str().unwrap(),
        ]);
    }
}

impl Drop for BindMount<'_> {
    fn drop(&mut self) {
        let _ = Command::new("umount").args(["--lazy"]).arg(self.0).status();
    }
}

fn mount(arguments: &[&str]) {
    let status = Command::new("mount").args(arguments).status().unwrap();
    assert!(status.success(), "mount {arguments:?}: {status}");
}

#[test]
#[ignore = "needs the release binary and the right to mount: ./test --only crashes"]
fn a_read_only_data_directory_is_refused_not_emptied() {
    let scratch = Scratch::new("read-only").unwrap();
    let data = scratch.path().join("data");
    fs::create_dir(&data).unwrap();
    let bound = BindMount::new(&data);
    let mut broker = Broker::start(Options {
        data_directory: Some(data.clone()),
        ..Options::default()
    })
    .unwrap();
    let mut http = Connection::open(&broker.http_address()).unwrap();
    message_api::create_topic(&mut http, "orders", 2).unwrap();
    message_api::publish(&mut http, "orders", &[("key", "payload")]).unwrap();
    broker.kill9().unwrap();
    bound.remount("ro");
    assert_refuses_to_start(&mut broker, "Read-only");
    bound.remount("rw");
    broker.restart().unwrap();
    let mut http = Connection::open(&broker.http_address()).unwrap();
    assert_eq!(read_some(&mut http, "group", "orders"), 1);
    drop(broker);
}
