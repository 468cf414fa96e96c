//! The broker dies at any moment, under load, and keeps what it promised: by SIGKILL, which loses the process, and by
//! power cuts, which lose what was not made durable. Full, read-only and damaged disks, and packets that no client
//! sends, stop no more than they must.
//!
//! `CORELOG_CRASHES` says how many kills and how many cuts (50); `CORELOG_SEED` what their moments follow from.
#![allow(clippy::unwrap_used, clippy::panic)]

mod damaged_disks;
mod kills_and_cuts;
mod malformed_frames;
mod restarts;

use std::fs;

use corelog_tests::broker::{Broker, Options};
use corelog_tests::http::Connection;
use corelog_tests::message_api;
use corelog_tests::power_cut::{self, PowerCut};
use corelog_tests::scratch::Scratch;

/// A power-cut disk in a directory of its own; unmounted before that goes.
struct Disk {
    power: Option<PowerCut>,
    scratch: Scratch,
}

impl Disk {
    fn new(options: power_cut::Options) -> Self {
        let scratch = Scratch::new("crashes").unwrap();
        let mount_point = scratch.path().join("mount");
        fs::create_dir(&mount_point).unwrap();
        let power = PowerCut::mount(&mount_point, options).unwrap();
        Self {
            power: Some(power),
            scratch,
        }
    }

    fn power(&self) -> &PowerCut {
        self.power.as_ref().unwrap()
    }

    fn start_broker(&self) -> Broker {
        let data_directory = Some(self.scratch.path().join("mount/data"));
        Broker::start(Options {
            data_directory,
            ..Options::default()
        })
        .unwrap()
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        drop(self.power.take());
    }
}

/// How many of the first messages of a topic a new group reads.
fn read_some(http: &mut Connection, group: &str, topic: &str) -> usize {
    message_api::fetch(http, group, topic, 10, 1_000)
        .unwrap()
        .len()
}
