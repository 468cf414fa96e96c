//! Tells the tasks of one core that it stops.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};

/// Given once, heard by everyone, also by those who ask afterwards.
#[derive(Debug, Default)]
pub struct StopSignal {
    is_given: Cell<bool>,
    next: Cell<u64>,
    waiting: RefCell<HashMap<u64, Waker>>,
}

impl StopSignal {
    /// Whether the core stops.
    pub fn is_given(&self) -> bool {
        self.is_given.get()
    }

    /// Gives it.
    pub fn give(&self) {
        self.is_given.set(true);
        // Out of the cell first: whoever is woken may drop its wait at once.
        let waiting = self.waiting.take();
        waiting.into_values().for_each(Waker::wake);
    }

    /// Ready once it is given.
    pub fn wait(self: &Rc<Self>) -> StopWait {
        let number = self.next.get();
        self.next.set(number.wrapping_add(1));
        StopWait {
            signal: Rc::clone(self),
            number,
        }
    }
}

/// One who waits for the signal. Takes no room when dropped.
#[derive(Debug)]
pub struct StopWait {
    signal: Rc<StopSignal>,
    number: u64,
}

impl Future for StopWait {
    type Output = ();

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        if self.signal.is_given() {
            return Poll::Ready(());
        }
        let mut waiting = self.signal.waiting.borrow_mut();
        waiting
            .entry(self.number)
            .and_modify(|waker| waker.clone_from(context.waker()))
            .or_insert_with(|| context.waker().clone());
        Poll::Pending
    }
}

impl Drop for StopWait {
    fn drop(&mut self) {
        let waker = self.signal.waiting.borrow_mut().remove(&self.number);
        drop(waker);
    }
}

#[cfg(test)]
mod tests {
    use std::pin::pin;

    use super::*;

    fn is_ready(wait: Pin<&mut StopWait>) -> bool {
        wait.poll(&mut Context::from_waker(Waker::noop()))
            .is_ready()
    }

    #[test]
    fn a_stop_is_heard_by_who_waits_and_by_who_comes_later() {
        let signal = Rc::new(StopSignal::default());
        let mut early = pin!(signal.wait());
        assert!(!is_ready(early.as_mut()));
        signal.give();
        assert!(is_ready(early.as_mut()));
        assert!(is_ready(pin!(signal.wait())));
    }

    #[test]
    fn who_waits_no_longer_takes_no_room() {
        let signal = Rc::new(StopSignal::default());
        {
            let mut wait = pin!(signal.wait());
            assert!(!is_ready(wait.as_mut()));
            assert!(!is_ready(wait.as_mut()));
            assert_eq!(signal.waiting.borrow().len(), 1);
        }
        assert!(signal.waiting.borrow().is_empty());
    }
}
