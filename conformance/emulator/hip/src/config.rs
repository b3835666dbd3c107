//! The environment that says what to emulate.
//!
//! - `MOSS_EMULATE`: target, or several by commas in device order (`gfx1036,gfx1100`); `none` or unset: no device
//! - `MOSS_EMULATE_VRAM`: device memory, `8GiB`, `512MiB` or bytes; one value or one per device
//! - `MOSS_EMULATE_ORDER`: `forward`, `reverse`, `shuffle`, `shuffle:SEED`
//! - `MOSS_EMULATE_MODEL`: `fma-chain`, `products-first`, `pairs`, `exact`, `silicon-gfx1151`
//! - `MOSS_EMULATE_THREADS`: worker threads of a launch
//! - `MOSS_EMULATE_STREAMS`: `late` (work runs when something waits for it) or `early-copies` (copies run as
//!   soon as their own stream allows, kernels late)
//! - `MOSS_EMULATE_SKIP_WAITS`: `1` makes no stream wait for another, as if the program had forgotten to ask
//! - `MOSS_EMULATE_SANITIZE`: `0` looks for no LDS races and no uninitialised LDS
//! - `MOSS_EMULATE_FAIL_MALLOC`, `MOSS_EMULATE_FAIL_HOST_MALLOC`: the n-th call fails; `n+` from the n-th on
//! - `MOSS_EMULATE_LOST_AFTER`: the device is lost after that many launches
//! - `MOSS_EMULATE_BLOCK`: calls of the function with that name (`hipMalloc`) say so and never come back
//! - `MOSS_EMULATE_COPY_GIBS`: copies take as long as a link of that many GiB/s would
//! - `MOSS_EMULATE_STATS`: `1` prints counts and speed when the process ends

use moss_emulator::{MatrixModel, Options, Order};

/// Calls that fail.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Failing {
    /// The first failing call, from 1; 0 for none.
    pub first: u64,
    /// All later calls fail too.
    pub onwards: bool,
}

impl Failing {
    /// Whether call number `n` fails.
    pub fn hits(self, n: u64) -> bool {
        self.first != 0 && (n == self.first || self.onwards && n > self.first)
    }
}

/// When copies run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Streams {
    /// Everything as late as its waits allow.
    #[default]
    Late,
    /// Copies as early as their stream allows.
    EarlyCopies,
}

/// What to emulate.
#[derive(Clone, Debug)]
pub struct Config {
    /// Target and memory in bytes of each device.
    pub devices: Vec<(String, u64)>,
    /// How launches run.
    pub options: Options,
    /// When copies run.
    pub streams: Streams,
    /// `hipStreamWaitEvent` does nothing.
    pub skip_waits: bool,
    /// Failing `hipMalloc` calls.
    pub fail_malloc: Failing,
    /// Failing `hipHostMalloc` calls.
    pub fail_host_malloc: Failing,
    /// Launches until the device is lost.
    pub lost_after: Option<u64>,
    /// Name of the function whose calls never come back.
    pub block: Option<String>,
    /// Speed of the emulated link, bytes a second.
    pub copy_rate: Option<f64>,
    /// Print statistics at exit.
    pub stats: bool,
}

/// Device memory when the environment names none.
const DEFAULT_VRAM: u64 = 16 << 30;

/// `8GiB`, `512MiB`, `64KiB` or bytes.
fn bytes(text: &str) -> Option<u64> {
    let text = text.trim();
    let (number, shift) = [("GiB", 30), ("MiB", 20), ("KiB", 10)]
        .into_iter()
        .find_map(|(unit, shift)| text.strip_suffix(unit).map(|n| (n, shift)))
        .unwrap_or((text, 0));
    let value = number.trim().parse::<f64>().ok()? * f64::from(1u32 << shift);
    (value >= 0.0 && value.is_finite()).then_some(value as u64)
}

fn failing(text: &str) -> Option<Failing> {
    let (number, onwards) = match text.strip_suffix('+') {
        Some(n) => (n, true),
        None => (text, false),
    };
    number.parse().ok().filter(|&n| n > 0).map(|first| Failing { first, onwards })
}

fn order(text: &str) -> Option<Order> {
    match text.split_once(':') {
        None if text == "forward" => Some(Order::Forward),
        None if text == "reverse" => Some(Order::Reverse),
        None if text == "shuffle" => Some(Order::Shuffle(1)),
        Some(("shuffle", seed)) => seed.parse().ok().map(Order::Shuffle),
        _ => None,
    }
}

impl Config {
    /// Reads the environment through `var`; the error names the variable and what it held.
    pub fn from_env(var: impl Fn(&str) -> Option<String>) -> Result<Self, String> {
        fn read<T>(
            var: &impl Fn(&str) -> Option<String>,
            name: &str,
            parse: impl Fn(&str) -> Option<T>,
        ) -> Result<Option<T>, String> {
            match var(name) {
                None => Ok(None),
                Some(text) => match parse(&text) {
                    Some(v) => Ok(Some(v)),
                    None => Err(format!("{name}={text:?} is not understood")),
                },
            }
        }
        let targets = var("MOSS_EMULATE").unwrap_or_default();
        let targets: Vec<&str> =
            targets.split(',').map(str::trim).filter(|t| !t.is_empty() && *t != "none").collect();
        if let Some(bad) = targets.iter().find(|t| !t.starts_with("gfx")) {
            return Err(format!("MOSS_EMULATE: {bad:?} is no target; expected gfx1200 or the like, or none"));
        }
        let memory =
            read(&var, "MOSS_EMULATE_VRAM", |t| t.split(',').map(bytes).collect::<Option<Vec<_>>>())?;
        let memory = memory.unwrap_or_else(|| vec![DEFAULT_VRAM]);
        if memory.len() != 1 && memory.len() != targets.len() {
            return Err(format!(
                "MOSS_EMULATE_VRAM has {} values for {} devices",
                memory.len(),
                targets.len()
            ));
        }
        let devices =
            targets.iter().enumerate().map(|(n, t)| ((*t).to_owned(), memory[n.min(memory.len() - 1)]));
        let mut options = Options::default();
        if let Some(o) = read(&var, "MOSS_EMULATE_ORDER", order)? {
            options.order = o;
        }
        if let Some(m) = read(&var, "MOSS_EMULATE_MODEL", MatrixModel::by_name)? {
            options.model = m;
        }
        if let Some(n) = read(&var, "MOSS_EMULATE_THREADS", |t| t.parse().ok().filter(|&n| n > 0))? {
            options.threads = n;
        }
        let flag = |t: &str| match t {
            "0" => Some(false),
            "1" => Some(true),
            _ => None,
        };
        if let Some(s) = read(&var, "MOSS_EMULATE_SANITIZE", flag)? {
            options.sanitize = s;
        }
        let streams = |t: &str| match t {
            "late" => Some(Streams::Late),
            "early-copies" => Some(Streams::EarlyCopies),
            _ => None,
        };
        let rate = |t: &str| t.parse::<f64>().ok().filter(|r| *r > 0.0).map(|r| r * f64::from(1u32 << 30));
        Ok(Config {
            devices: devices.collect(),
            options,
            streams: read(&var, "MOSS_EMULATE_STREAMS", streams)?.unwrap_or_default(),
            skip_waits: read(&var, "MOSS_EMULATE_SKIP_WAITS", flag)?.unwrap_or(false),
            fail_malloc: read(&var, "MOSS_EMULATE_FAIL_MALLOC", failing)?.unwrap_or_default(),
            fail_host_malloc: read(&var, "MOSS_EMULATE_FAIL_HOST_MALLOC", failing)?.unwrap_or_default(),
            lost_after: read(&var, "MOSS_EMULATE_LOST_AFTER", |t| t.parse().ok())?,
            block: var("MOSS_EMULATE_BLOCK"),
            copy_rate: read(&var, "MOSS_EMULATE_COPY_GIBS", rate)?,
            stats: read(&var, "MOSS_EMULATE_STATS", flag)?.unwrap_or(false),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(pairs: &[(&str, &str)]) -> Result<Config, String> {
        let pairs: Vec<(String, String)> =
            pairs.iter().map(|(k, v)| (format!("MOSS_EMULATE{k}"), (*v).to_owned())).collect();
        Config::from_env(|name| pairs.iter().find(|(k, _)| k == name).map(|(_, v)| v.clone()))
    }

    #[test]
    fn reads_devices_and_switches() {
        assert!(of(&[]).expect("valid").devices.is_empty());
        assert!(of(&[("", "none")]).expect("valid").devices.is_empty());
        let c =
            of(&[("", "gfx1036,gfx1100"), ("_VRAM", "512MiB,24GiB"), ("_FAIL_MALLOC", "3+")]).expect("valid");
        assert_eq!(c.devices, [("gfx1036".to_owned(), 512 << 20), ("gfx1100".to_owned(), 24 << 30)]);
        assert_eq!([2, 3, 4].map(|n| c.fail_malloc.hits(n)), [false, true, true]);
        let once = Failing { first: 3, onwards: false };
        assert_eq!([2, 3, 4].map(|n| once.hits(n)), [false, true, false]);
    }

    #[test]
    fn names_what_it_does_not_understand() {
        for (name, value) in [
            ("", "navi"),
            ("_VRAM", "lots"),
            ("_ORDER", "sideways"),
            ("_MODEL", "guess"),
            ("_THREADS", "0"),
            ("_STREAMS", "never"),
            ("_SKIP_WAITS", "some"),
            ("_SANITIZE", "yes"),
            ("_FAIL_MALLOC", "0"),
            ("_LOST_AFTER", "-1"),
            ("_COPY_GIBS", "0"),
        ] {
            let error = of(&[(name, value)]).expect_err(name);
            assert!(error.contains(&format!("MOSS_EMULATE{name}")) && error.contains(value), "{error}");
        }
        assert!(of(&[("", "gfx1200"), ("_VRAM", "1GiB,2GiB")]).is_err());
    }
}
