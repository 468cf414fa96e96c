//! A pinned thread with its reactor, and what a task on it may ask for.
//!
//! The reactor looks for completions and for wake-ups from other threads between turns: when no
//! task is runnable, or when its preempt timer fires. Two of its traits shape this module. It may
//! go to sleep with runnable tasks if its preempt timer fires just before a turn begins, the more
//! often the shorter that timer is; hence a floor of [`PREEMPT_MS_MIN`], no task queue with a
//! latency goal (which would shorten the timer and make other threads interrupt turns), and the
//! tick ([`crate::uring::tick`]), which ends such a sleep. And a task that stays runnable delays
//! wake-ups from other cores by a whole preempt period; hence [`next_turn`].

use std::cell::{Cell, RefCell};
use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::thread;
use std::time::Duration;

use glommio::{
    Latency, LocalExecutor, LocalExecutorBuilder, Placement, PoolPlacement, Shares, TaskQueueHandle,
};

use crate::uring::tick::{self, Pulse};

/// The shortest preempt timer accepted, in milliseconds. Below it the reactor parks with runnable
/// tasks often enough to be seen.
pub const PREEMPT_MS_MIN: u64 = 10;

/// Threads of each core for calls that would block its reactor.
const BLOCKING_THREADS: usize = 2;

/// Shares of CPU time, while both kinds of work are runnable.
const FOREGROUND_SHARES: usize = 1000;
const BACKGROUND_SHARES: usize = 100;

/// A turn's length when a task gives it up voluntarily; long enough that the timer is not already
/// due when it is first looked at.
const TURN: Duration = Duration::from_micros(5);

/// How one core is run.
#[derive(Clone, Debug)]
pub struct CoreOptions {
    /// The core's number within the broker.
    pub index: usize,
    /// The CPU to pin the thread to; `None` leaves it to the scheduler, and then never spins.
    pub cpu: Option<usize>,
    /// The longest turn before the reactor looks for completions, in milliseconds; raised to
    /// [`PREEMPT_MS_MIN`] if lower.
    pub preempt_ms: u64,
    /// How long to look for work before sleeping, in microseconds. 50 cuts a round trip between
    /// cores tenfold; must be 0 where reactors outnumber CPUs (see `placement`).
    pub spin_us: u64,
    /// Registered memory for disk I/O, in bytes. It is registered with three rings, so it counts
    /// three times against the locked-memory limit.
    pub io_memory_bytes: usize,
    /// Entries of each ring.
    pub ring_depth: usize,
    /// The thread's name.
    pub name: String,
}

impl Default for CoreOptions {
    fn default() -> Self {
        Self {
            index: 0,
            cpu: None,
            preempt_ms: PREEMPT_MS_MIN,
            spin_us: 0,
            io_memory_bytes: 16 << 20,
            ring_depth: 256,
            name: String::from("core"),
        }
    }
}

/// What a core's thread knows of itself.
struct Local {
    foreground: Cell<Option<TaskQueueHandle>>,
    background: Cell<Option<TaskQueueHandle>>,
    running: Cell<bool>,
    index: Cell<usize>,
    in_flight: Cell<usize>,
    activity: Cell<u64>,
}

thread_local! {
    static LOCAL: Local = const {
        Local {
            foreground: Cell::new(None),
            background: Cell::new(None),
            running: Cell::new(false),
            index: Cell::new(0),
            in_flight: Cell::new(0),
            activity: Cell::new(0),
        }
    };
}

/// A running core.
#[derive(Debug)]
pub struct CoreHandle<T> {
    thread: thread::JoinHandle<Option<T>>,
}

impl<T> CoreHandle<T> {
    /// Waits for the core's end.
    ///
    /// # Errors
    /// If the core's thread panicked.
    pub fn join(self) -> io::Result<T> {
        let ended = self.thread.join().ok().flatten();
        ended.ok_or_else(|| io::Error::other("a core's thread panicked"))
    }

    /// Whether the core has ended.
    pub fn is_finished(&self) -> bool {
        self.thread.is_finished()
    }
}

/// Starts a core: a thread with a reactor that runs the future made by `main` to its end.
///
/// Tasks that still wait then are dropped, with all they hold; disk operations that were submitted are waited for.
///
/// # Errors
/// If the thread or its reactor cannot be made: no io_uring, no such CPU, too little locked memory
/// (`check_locked_memory` says so in better words).
pub fn run_core<G, F, T>(options: CoreOptions, main: G) -> io::Result<CoreHandle<T>>
where
    G: FnOnce() -> F + Send + 'static,
    F: Future<Output = T> + 'static,
    T: Send + 'static,
{
    let (started, start) = std::sync::mpsc::sync_channel::<io::Result<()>>(1);
    let thread = thread::Builder::new()
        .name(options.name.clone())
        .spawn(move || {
            let executor = match make_executor(&options) {
                Ok(executor) => executor,
                Err(error) => {
                    let _ = started.send(Err(error));
                    return None;
                }
            };
            let pulse = match tick::start() {
                Ok(pulse) => pulse,
                Err(error) => {
                    let _ = started.send(Err(error));
                    return None;
                }
            };
            let _ = started.send(Ok(()));
            let output = executor.run(live(options.index, pulse, main));
            // Tasks that still wait are dropped with the executor, after its last turn.
            LOCAL.with(|local| local.running.set(false));
            Some(output)
        })?;
    match start.recv() {
        Ok(Ok(())) => Ok(CoreHandle { thread }),
        Ok(Err(error)) => Err(error),
        Err(_) => Err(io::Error::other("a core's thread ended before it started")),
    }
}

fn make_executor(options: &CoreOptions) -> io::Result<LocalExecutor> {
    let placement = options.cpu.map_or(Placement::Unbound, Placement::Fixed);
    LocalExecutorBuilder::new(placement)
        .name(&options.name)
        .preempt_timer(Duration::from_millis(
            options.preempt_ms.max(PREEMPT_MS_MIN),
        ))
        .spin_before_park(Duration::from_micros(options.spin_us))
        .io_memory(options.io_memory_bytes)
        .ring_depth(options.ring_depth.max(8))
        .blocking_thread_pool_placement(PoolPlacement::Unbound(BLOCKING_THREADS))
        .make()
        .map_err(io::Error::from)
}

/// The life of a core's thread, from its first turn to its last.
async fn live<G, F, T>(index: usize, pulse: Arc<Pulse>, main: G) -> T
where
    G: FnOnce() -> F,
    F: Future<Output = T> + 'static,
    T: 'static,
{
    let executor = glommio::executor();
    // No latency goal: see the module's head.
    let foreground = executor.create_task_queue(
        Shares::Static(FOREGROUND_SHARES),
        Latency::NotImportant,
        "foreground",
    );
    let background = executor.create_task_queue(
        Shares::Static(BACKGROUND_SHARES),
        Latency::NotImportant,
        "background",
    );
    LOCAL.with(|local| {
        local.background.set(Some(background));
        local.foreground.set(Some(foreground));
        local.index.set(index);
        local.running.set(true);
    });
    let ticked = spawn_raw(foreground, tick::listen(Arc::clone(&pulse)));
    let output = spawn_local(main()).await;
    stop_tasks();
    while in_flight() > 0 || tasks_left() > 0 {
        sleep(Duration::from_millis(1)).await;
    }
    tick::stop(&pulse);
    drop(ticked);
    // Files dropped without a close are closed by the reactor's next turns.
    for _ in 0..3 {
        sleep(Duration::from_micros(50)).await;
    }
    crate::uring::buffer::close_returns();
    output
}

/// Tells the tick that something happens on this core.
pub(super) fn note_activity() {
    LOCAL.with(|local| local.activity.set(local.activity.get().wrapping_add(1)));
}

/// A count that grows whenever something happens on this core.
pub(super) fn activity() -> u64 {
    LOCAL.with(|local| local.activity.get())
}

/// Whether this thread is a core's, between its first and its last turn.
pub(super) fn on_core() -> bool {
    LOCAL.with(|local| local.running.get())
}

/// Disk operations submitted on this core that have not ended.
pub fn in_flight() -> usize {
    LOCAL.with(|local| local.in_flight.get())
}

/// The index of the core that runs this thread, as given in its options; `None` elsewhere.
pub fn core_index() -> Option<usize> {
    LOCAL.with(|local| local.running.get().then(|| local.index.get()))
}

/// A future running on this core. Dropping it cancels the future; [`Task::detach`] lets it run on.
#[derive(Debug)]
#[must_use = "a task dropped is a task cancelled; detach it to let it run"]
pub struct Task<T> {
    task: Option<glommio::Task<T>>,
}

impl<T: 'static> Task<T> {
    /// Lets the task run to its end without anyone waiting for it.
    pub fn detach(mut self) {
        if let Some(task) = self.task.take() {
            task.detach();
        }
    }

    /// Cancels the task and waits until it no longer runs; its output if it had ended already.
    pub async fn cancel(mut self) -> Option<T> {
        match self.task.take() {
            Some(task) => task.cancel().await,
            None => None,
        }
    }
}

impl<T> Future for Task<T> {
    type Output = T;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<T> {
        match &mut self.task {
            Some(task) => Pin::new(task).poll(context),
            None => Poll::Pending,
        }
    }
}

/// Starts a future on this core, in the queue for foreground work.
///
/// # Panics
/// If this thread is not a core.
pub fn spawn_local<T: 'static>(future: impl Future<Output = T> + 'static) -> Task<T> {
    spawn_in(LOCAL.with(|local| local.foreground.get()), future)
}

/// Starts a future on this core, in the queue for background work, which gets a tenth of the CPU
/// while foreground work is runnable. Such work runs in short turns: [`next_turn`] between pieces.
///
/// # Panics
/// If this thread is not a core.
pub fn spawn_background<T: 'static>(future: impl Future<Output = T> + 'static) -> Task<T> {
    spawn_in(LOCAL.with(|local| local.background.get()), future)
}

fn spawn_in<T: 'static>(
    queue: Option<TaskQueueHandle>,
    future: impl Future<Output = T> + 'static,
) -> Task<T> {
    assert!(on_core(), "tasks are started on a core's own thread");
    spawn_raw(queue.unwrap_or_default(), Stoppable::new(future))
}

/// Starts a future that the core's end does not stop.
fn spawn_raw<T: 'static>(
    queue: TaskQueueHandle,
    future: impl Future<Output = T> + 'static,
) -> Task<T> {
    // The queues live as long as the core, so this cannot miss.
    let task = glommio::spawn_local_into(future, queue)
        .unwrap_or_else(|_| unreachable!("a core keeps its queues"));
    Task { task: Some(task) }
}

/// How to wake each task of this core that has not ended. When a core ends, the reactor library
/// forgets the tasks that still wait, with the sockets and replies they hold; so each is woken to
/// drop what it holds.
struct Tasks {
    wakers: Vec<Option<Waker>>,
    free: Vec<usize>,
    stopping: bool,
}

thread_local! {
    static TASKS: RefCell<Tasks> =
        const { RefCell::new(Tasks { wakers: Vec::new(), free: Vec::new(), stopping: false }) };
}

/// Makes every task of this core drop its future at its next turn.
fn stop_tasks() {
    let wakers: Vec<Waker> = TASKS.with_borrow_mut(|tasks| {
        tasks.stopping = true;
        tasks.wakers.iter_mut().filter_map(Option::take).collect()
    });
    wakers.into_iter().for_each(Waker::wake);
}

/// Tasks of this core that have not ended.
fn tasks_left() -> usize {
    TASKS.with_borrow(|tasks| tasks.wakers.len() - tasks.free.len())
}

/// A task's future, until it ends or its core does.
struct Stoppable<F> {
    // Boxed so that it can be dropped in place of being moved.
    future: Option<Pin<Box<F>>>,
    slot: usize,
}

impl<F> Stoppable<F> {
    fn new(future: F) -> Self {
        let slot = TASKS.with_borrow_mut(|tasks| {
            tasks.free.pop().unwrap_or_else(|| {
                tasks.wakers.push(None);
                tasks.wakers.len() - 1
            })
        });
        Self {
            future: Some(Box::pin(future)),
            slot,
        }
    }
}

impl<F: Future> Future for Stoppable<F> {
    type Output = F::Output;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<F::Output> {
        let slot = self.slot;
        let stopping = TASKS.with_borrow_mut(|tasks| {
            let known = tasks.wakers.get_mut(slot);
            if let Some(known) = known
                && !known
                    .as_ref()
                    .is_some_and(|known| known.will_wake(context.waker()))
            {
                *known = Some(context.waker().clone());
            }
            tasks.stopping
        });
        if stopping {
            self.end();
            return Poll::Pending;
        }
        match &mut self.future {
            Some(future) => future.as_mut().poll(context),
            None => Poll::Pending,
        }
    }
}

impl<F> Stoppable<F> {
    /// Drops the future and leaves the list, once.
    fn end(&mut self) {
        if let Some(future) = self.future.take() {
            drop(future);
            let slot = self.slot;
            // An ending thread has no list left.
            let _ = TASKS.try_with(|tasks| {
                let mut tasks = tasks.borrow_mut();
                let waker = tasks.wakers.get_mut(slot).and_then(Option::take);
                tasks.free.push(slot);
                drop(tasks);
                drop(waker);
            });
        }
    }
}

impl<F> Drop for Stoppable<F> {
    fn drop(&mut self) {
        self.end();
    }
}

/// Waits for this long.
pub async fn sleep(duration: Duration) {
    glommio::timer::sleep(duration).await;
}

/// Gives way if the reactor asks for it: its preempt timer fired or something urgent completed.
/// For loops that compute; a loop that never waits also needs [`next_turn`] now and then.
pub async fn yield_if_needed() {
    glommio::yield_if_needed().await;
}

/// Puts the task aside until the reactor has looked for completions and for wake-ups from other
/// cores. Merely yielding would not do: the reactor looks only when its run queue is empty.
pub async fn next_turn() {
    sleep(TURN).await;
}

/// The turn as a timer, for code that polls.
pub(super) fn turn_timer() -> glommio::timer::Timer {
    glommio::timer::Timer::new(TURN)
}

/// The future's output, or `None` if it did not come within `duration`; the future is dropped then.
pub async fn timeout<T>(duration: Duration, future: impl Future<Output = T>) -> Option<T> {
    let late = async {
        sleep(duration).await;
        None
    };
    futures_lite::future::or(async { Some(future.await) }, late).await
}

/// Runs a call that blocks on one of the core's threads for that purpose.
///
/// The call runs to its end also when this future is dropped.
pub async fn blocking<T: Send + 'static>(call: impl FnOnce() -> T + Send + 'static) -> T {
    run_to_end(glommio::executor().spawn_blocking(call)).await
}

/// Runs an I/O operation that owns its buffer and its file, and keeps it running if the caller is
/// dropped meanwhile.
///
/// The reactor library keeps the buffer of a dropped operation until the kernel answers, but it
/// asks the kernel to cancel, it may never submit what is still queued, and nobody would know when
/// the answer came. An append that may or may not have happened, and a core that ends while the
/// kernel still writes into its memory, are both worse than an operation that runs to its end.
pub(super) async fn run_to_end<T: 'static>(operation: impl Future<Output = T> + 'static) -> T {
    note_activity();
    LOCAL.with(|local| local.in_flight.set(local.in_flight.get() + 1));
    let counted = async move {
        let _ended = EndOfOperation;
        operation.await
    };
    Operation {
        running: Some(Box::pin(counted)),
    }
    .await
}

/// Counts an operation out when it ended.
struct EndOfOperation;

impl Drop for EndOfOperation {
    fn drop(&mut self) {
        LOCAL.with(|local| local.in_flight.set(local.in_flight.get() - 1));
    }
}

struct Operation<T: 'static> {
    running: Option<Pin<Box<dyn Future<Output = T>>>>,
}

impl<T: 'static> Future for Operation<T> {
    type Output = T;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<T> {
        let Some(running) = &mut self.running else {
            return Poll::Pending;
        };
        let output = std::task::ready!(running.as_mut().poll(context));
        self.running = None;
        Poll::Ready(output)
    }
}

impl<T: 'static> Drop for Operation<T> {
    fn drop(&mut self) {
        if let Some(running) = self.running.take()
            && on_core()
        {
            let queue = LOCAL
                .with(|local| local.foreground.get())
                .unwrap_or_default();
            spawn_raw(queue, async move {
                running.await;
            })
            .detach();
        }
    }
}
