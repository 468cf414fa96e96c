//! The tick: a thread beside the cores that wakes each of them, so that a wake-up which the reactor
//! missed costs one tick and no more.
//!
//! The reactor library goes to sleep with runnable tasks when its preempt timer fires between its
//! look at completions and its first task, which happens where other programs take the CPU away.
//! All that it waits for may have completed by then, a timer of the core's own included, so nothing
//! on the core would ever end that sleep: in the soak test (docs/performance.md) it lasted until a
//! signal came. A wake-up from another thread does end it.

use std::future::poll_fn;
use std::io;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Poll, Waker};
use std::thread;
use std::time::Duration;

use crate::uring::buffer::drain_returns;
use crate::uring::core::{activity, in_flight};

/// How often a core with work in flight is woken, in milliseconds.
pub const TICK_MS: u64 = 10;

/// An idle core is woken by one tick out of so many.
pub const TICKS_PER_IDLE_TICK: u64 = 4;

/// Ticks without any I/O or message after which a core counts as idle.
const TICKS_UNTIL_IDLE: u32 = 100;

/// Ticks that may wait for a core that does not run at all. A waiting one counts as a reference to
/// the task, of which the reactor library allows 32,767.
const UNSEEN_TICKS_MAX: u32 = 1_000;

/// What the ticking thread and one core share.
#[derive(Default)]
pub(super) struct Pulse {
    waker: Mutex<Option<Waker>>,
    /// Written by the core: its count of activities.
    activity: AtomicU64,
    /// Ticks since the core saw one.
    unseen: AtomicU32,
}

/// A core as the ticking thread knows it.
struct Patient {
    pulse: Arc<Pulse>,
    activity: u64,
    idle_ticks: u32,
}

struct Ward {
    patients: Vec<Patient>,
    ticking: bool,
}

static WARD: Mutex<Ward> = Mutex::new(Ward {
    patients: Vec::new(),
    ticking: false,
});

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Has a core woken from now on, by the one ticking thread of the process.
///
/// # Errors
/// If that thread cannot be started.
pub(super) fn start() -> io::Result<Arc<Pulse>> {
    let pulse = Arc::new(Pulse::default());
    let mut ward = lock(&WARD);
    ward.patients.push(Patient {
        pulse: Arc::clone(&pulse),
        activity: 0,
        idle_ticks: 0,
    });
    if !ward.ticking {
        thread::Builder::new()
            .name(String::from("core-tick"))
            .spawn(tick_all)?;
        ward.ticking = true;
    }
    Ok(pulse)
}

/// Has a core no longer woken. On the core's own thread.
pub(super) fn stop(pulse: &Arc<Pulse>) {
    lock(&WARD)
        .patients
        .retain(|patient| !Arc::ptr_eq(&patient.pulse, pulse));
    let waker = lock(&pulse.waker).take();
    drop(waker);
}

/// The core's side of the tick: never ends.
pub(super) async fn listen(pulse: Arc<Pulse>) {
    let mut registered = false;
    poll_fn(|context| {
        pulse.unseen.store(0, Ordering::Relaxed);
        // An operation in flight is work, however long the device takes.
        let count = if in_flight() > 0 {
            u64::MAX
        } else {
            activity()
        };
        pulse.activity.store(count, Ordering::Relaxed);
        drain_returns();
        if !registered {
            // Once, so that a ticking thread without a CPU never keeps the core waiting. The task's
            // waker stays the same for its life.
            *lock(&pulse.waker) = Some(context.waker().clone());
            registered = true;
        }
        Poll::Pending
    })
    .await
}

/// The ticking thread, until no core is left.
fn tick_all() {
    let mut tick = 0_u64;
    loop {
        thread::sleep(Duration::from_millis(TICK_MS));
        tick = tick.wrapping_add(1);
        let mut ward = lock(&WARD);
        if ward.patients.is_empty() {
            ward.ticking = false;
            return;
        }
        for patient in &mut ward.patients {
            patient.tick(tick);
        }
    }
}

impl Patient {
    fn tick(&mut self, tick: u64) {
        let activity = self.pulse.activity.load(Ordering::Relaxed);
        let idle = activity == self.activity && activity != u64::MAX;
        self.idle_ticks = if idle {
            self.idle_ticks.saturating_add(1)
        } else {
            0
        };
        self.activity = activity;
        if self.idle_ticks > TICKS_UNTIL_IDLE && !tick.is_multiple_of(TICKS_PER_IDLE_TICK) {
            return;
        }
        if self.pulse.unseen.fetch_add(1, Ordering::Relaxed) < UNSEEN_TICKS_MAX {
            // By reference: a tick that the core slept through must not be the last.
            if let Some(waker) = &*lock(&self.pulse.waker) {
                waker.wake_by_ref();
            }
        }
    }
}
