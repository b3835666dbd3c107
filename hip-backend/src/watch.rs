//! Calls of the runtime that do not come back. Each call is in a list while it is made; a thread beside them names one that
//! takes too long and ends the process, which nothing else can do while the caller is blocked.

use std::sync::{Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, Instant};

use crate::device::Device;
use crate::error::{Error, exit_at_once};

/// Something that is waited for.
struct Call {
    number: u64,
    name: &'static str,
    since: Instant,
    /// A wait that ends by itself after its limit.
    bounded: bool,
}

struct Calls {
    made: u64,
    now: Vec<Call>,
}

static CALLS: Mutex<Calls> = Mutex::new(Calls { made: 0, now: Vec::new() });

fn calls() -> MutexGuard<'static, Calls> {
    CALLS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// In the list until dropped.
pub(crate) struct Waiting(u64);

impl Waiting {
    fn new(name: &'static str, bounded: bool) -> Self {
        let mut calls = calls();
        calls.made += 1;
        let number = calls.made;
        calls.now.push(Call { number, name, since: Instant::now(), bounded });
        Self(number)
    }

    /// A wait that ends by itself after its limit.
    pub(crate) fn bounded(name: &'static str) -> Self {
        Self::new(name, true)
    }

    /// Something has happened: the time begins anew.
    pub(crate) fn progress(&self) {
        if let Some(call) = calls().now.iter_mut().find(|call| call.number == self.0) {
            call.since = Instant::now();
        }
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        calls().now.retain(|call| call.number != self.0);
    }
}

/// Makes a call of the runtime, in the list.
pub(crate) fn call<R>(name: &'static str, work: impl FnOnce() -> R) -> R {
    let _waiting = Waiting::new(name, false);
    work()
}

/// Whether a call of the runtime has not come back, or the device has finished nothing that is waited for, for so long.
pub fn is_blocked(time: Duration) -> bool {
    calls().now.iter().any(|call| call.since.elapsed() >= time)
}

/// The call that has been made for at least `limit`.
fn overdue(limit: Duration) -> Option<&'static str> {
    calls().now.iter().find(|call| !call.bounded && call.since.elapsed() >= limit).map(|call| call.name)
}

/// What the watching thread needs to know.
struct Watch {
    limit: Duration,
    /// The device that was opened last, for the place.
    device: Weak<Device>,
    /// Says why the process ends.
    last_words: fn(&Error),
}

static WATCH: Mutex<Option<Watch>> = Mutex::new(None);

fn watch() -> MutexGuard<'static, Option<Watch>> {
    WATCH.lock().unwrap_or_else(PoisonError::into_inner)
}

/// From now on a call that takes `limit` ends the process with status 1, after `last_words`. Later calls change both.
///
/// # Errors
/// [`Error::Thread`] when the thread cannot be started.
pub(crate) fn start(limit: Duration, last_words: fn(&Error)) -> Result<(), Error> {
    let mut watch = watch();
    if watch.is_none() {
        let thread = std::thread::Builder::new().name("watch".to_owned());
        let refused = |error: std::io::Error| Error::Thread {
            what: "watches calls of the runtime",
            reason: error.to_string(),
        };
        thread.spawn(look).map_err(refused)?;
    }
    *watch = Some(Watch { limit, device: Weak::new(), last_words });
    Ok(())
}

/// The place of a blocked call is this device's.
pub(crate) fn on(device: Weak<Device>) {
    if let Some(watch) = &mut *watch() {
        watch.device = device;
    }
}

fn look() {
    loop {
        let (limit, last_words) = match &*watch() {
            Some(watch) => (watch.limit, watch.last_words),
            None => return,
        };
        if let Some(call) = overdue(limit) {
            let device = watch().as_ref().and_then(|watch| watch.device.upgrade());
            let context = device.map_or_else(String::new, |device| device.place_if_free());
            last_words(&Error::Blocked { call, seconds: limit.as_secs(), context });
            exit_at_once();
        }
        std::thread::sleep((limit / 8).clamp(Duration::from_millis(1), Duration::from_millis(200)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_call_is_listed_while_it_is_made_and_named_when_it_is_overdue() {
        let long = Duration::from_secs(3600);
        let listed = |name: &str| calls().now.iter().any(|call| call.name == name);
        call("hipSlow", || {
            assert!(listed("hipSlow") && overdue(Duration::ZERO).is_some());
            assert!(is_blocked(Duration::ZERO) && !is_blocked(long) && overdue(long).is_none());
        });
        assert!(!listed("hipSlow"));
        let wait = Waiting::bounded("a wait");
        assert!(listed("a wait") && overdue(Duration::ZERO) != Some("a wait"), "it has a limit of its own");
        drop(wait);
        assert!(!listed("a wait"));
    }
}
