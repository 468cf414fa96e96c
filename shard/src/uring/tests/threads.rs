//! Channels, replies and tasks.

use std::cell::Cell;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use super::on_a_core;
use crate::uring::channel::{Closed, SendError, bounded, local_reply, reply};
use crate::uring::*;

#[test]
fn a_full_channel_gives_the_message_back_and_says_so() {
    let (sender, receiver) = bounded(2);
    sender.try_send(1).unwrap();
    sender.try_send(2).unwrap();
    assert_eq!(sender.try_send(3), Err(SendError::Full(3)));
    assert_eq!(receiver.try_recv(), Ok(Some(1)));
    sender.try_send(3).unwrap();
    drop(receiver);
    assert_eq!(sender.try_send(4), Err(SendError::Closed(4)));
    let (sender, receiver) = bounded(2);
    sender.try_send(1).unwrap();
    drop(sender);
    assert_eq!(receiver.recv_blocking(), Ok(1));
    assert_eq!(receiver.recv_blocking(), Err(Closed));
}

#[test]
fn cores_wake_each_other_under_load_in_both_directions() {
    const ROUNDS: u64 = 300;
    const BURST: u64 = 300;
    let (to_second, second_inbox) = bounded::<u64>(BURST as usize);
    let (to_first, first_inbox) = bounded::<u64>(BURST as usize);
    let options = |index| CoreOptions {
        index,
        io_memory_bytes: 1 << 20,
        ring_depth: 64,
        ..CoreOptions::default()
    };
    let second = run_core(options(1), move || async move {
        // Busy with timers as well.
        let _ticker = spawn_background(async {
            loop {
                sleep(Duration::from_micros(200)).await;
            }
        });
        let mut sum = 0;
        while let Ok(number) = second_inbox.recv().await {
            sum += number;
            to_first.send(number).await.unwrap();
        }
        sum
    })
    .unwrap();
    let first = run_core(options(0), move || async move {
        let mut sum = 0;
        for round in 0..ROUNDS {
            for number in 0..BURST {
                to_second.send(round * BURST + number).await.unwrap();
            }
            for _ in 0..BURST {
                sum += first_inbox.recv().await.unwrap();
            }
        }
        sum
    })
    .unwrap();
    let expected = (0..ROUNDS * BURST).sum::<u64>();
    assert_eq!(first.join().unwrap(), expected);
    assert_eq!(second.join().unwrap(), expected);
}

#[test]
fn the_support_thread_and_a_core_exchange_messages_and_replies() {
    let (to_core, inbox) = bounded::<(u32, channel::Reply<u32>)>(4);
    let core = run_core(
        CoreOptions {
            io_memory_bytes: 1 << 20,
            ..CoreOptions::default()
        },
        move || async move {
            while let Ok((number, reply)) = inbox.recv().await {
                if number != 13 {
                    reply.send(number * 2).unwrap();
                }
            }
        },
    )
    .unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread()
        .build()
        .unwrap();
    runtime.block_on(async {
        for number in 10..200 {
            let (answer, answered) = reply();
            to_core.send((number, answer)).await.unwrap();
            let expected = if number == 13 {
                Err(Closed)
            } else {
                Ok(number * 2)
            };
            assert_eq!(answered.await, expected);
        }
    });
    drop(to_core);
    core.join().unwrap();
}

#[test]
fn a_local_reply_is_delivered_or_closed() {
    on_a_core(|| async {
        let (answer, answered) = local_reply();
        let task = spawn_local(answered);
        next_turn().await;
        answer.send(5).unwrap();
        assert_eq!(task.await, Ok(5));
        let (answer, answered) = local_reply::<u32>();
        drop(answer);
        assert_eq!(answered.await, Err(Closed));
        let (answer, answered) = local_reply::<u32>();
        drop(answered);
        assert!(answer.is_closed());
        assert_eq!(answer.send(6), Err(6));
    });
}

#[test]
fn a_receiver_that_never_waits_does_not_keep_other_work_from_running() {
    let stop = Arc::new(AtomicUsize::new(0));
    let seen = Arc::clone(&stop);
    on_a_core(move || async move {
        let (sender, receiver) = bounded::<()>(64);
        let flooding = Rc::new(Cell::new(true));
        let flood = {
            let (sender, flooding) = (sender.clone(), Rc::clone(&flooding));
            spawn_local(async move {
                while flooding.get() {
                    sender.send(()).await.unwrap();
                }
            })
        };
        let drain = spawn_local(async move { while receiver.recv().await.is_ok() {} });
        for _ in 0..20 {
            sleep(Duration::from_micros(100)).await;
            seen.fetch_add(1, Ordering::Relaxed);
        }
        flooding.set(false);
        flood.await;
        drop(sender);
        drain.await;
    });
    assert_eq!(stop.load(Ordering::Relaxed), 20);
}

#[test]
fn dropped_tasks_are_cancelled_and_detached_ones_run() {
    on_a_core(|| async {
        let ran = Rc::new(Cell::new(0));
        let count = |ran: &Rc<Cell<u32>>| {
            let ran = Rc::clone(ran);
            async move {
                sleep(Duration::from_millis(2)).await;
                ran.set(ran.get() + 1);
            }
        };
        drop(spawn_local(count(&ran)));
        spawn_background(count(&ran)).detach();
        assert!(
            spawn_local(std::future::pending::<()>())
                .cancel()
                .await
                .is_none()
        );
        assert!(
            timeout(Duration::from_millis(1), std::future::pending::<()>())
                .await
                .is_none()
        );
        assert_eq!(timeout(Duration::from_secs(60), async { 3 }).await, Some(3));
        sleep(Duration::from_millis(20)).await;
        assert_eq!(ran.get(), 1);
    });
}
