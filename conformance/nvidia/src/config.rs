//! The environment of the logic check.
//!
//! - `MOSS_PTX`: the folder with `KERNEL.ptx` for every kernel
//! - `MOSS_NVIDIA_ARCH`: the architecture that the device claims, so that its code objects are asked for; `gfx1200` by default
//! - `MOSS_NVIDIA_STATS`: `1` prints a line of counts when the process ends
//! - `MOSS_NVIDIA_CHECK`: `1` looks for work that no wait orders, see [`crate::hazards`]
//! - `MOSS_NVIDIA_LINES`: `1` keeps line numbers in the compiled kernels, for compute-sanitizer
//! - `MOSS_NVIDIA_DROP_WAIT`: a negative control. `1:3` drops the third wait for an event that stream 1 is told (streams count
//!   from 1 as they are made), `host:2` the second wait of the host
//! - `MOSS_NVIDIA_DROP_COPY`: a negative control. `3` drops the third copy, so that something is never written

use std::path::PathBuf;

/// Who waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Waiter {
    /// A stream, by its number.
    Stream(u32),
    /// The host.
    Host,
}

impl std::fmt::Display for Waiter {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Waiter::Stream(n) => write!(f, "{n}"),
            Waiter::Host => f.write_str("host"),
        }
    }
}

/// What the environment asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Config {
    /// Folder of the PTX files.
    pub ptx: Option<PathBuf>,
    /// Architecture that the device claims.
    pub arch: String,
    /// Print counts at the end.
    pub stats: bool,
    /// Look for hazards.
    pub check: bool,
    /// Keep line numbers.
    pub lines: bool,
    /// The wait to drop: whose, and which from 1.
    pub drop_wait: Option<(Waiter, u64)>,
    /// The copy to drop, from 1.
    pub drop_copy: Option<u64>,
}

/// `WAITER:N`.
fn wait(text: &str) -> Option<(Waiter, u64)> {
    let (waiter, n) = text.split_once(':')?;
    let waiter = match waiter {
        "host" => Waiter::Host,
        number => Waiter::Stream(number.parse().ok().filter(|&n| n > 0)?),
    };
    Some((waiter, n.parse().ok().filter(|&n| n > 0)?))
}

impl Config {
    /// Reads the environment through `var`.
    ///
    /// # Errors
    /// A line with the variable and what it held.
    pub fn from_env(var: impl Fn(&str) -> Option<String>) -> Result<Self, String> {
        let bad = |name: &str, text: &str, expected: &str| format!("{name}={text:?}; {expected} expected");
        let flag = |name: &str| match var(name).as_deref() {
            None | Some("0") => Ok(false),
            Some("1") => Ok(true),
            Some(text) => Err(bad(name, text, "0 or 1")),
        };
        let arch = var("MOSS_NVIDIA_ARCH").unwrap_or_else(|| "gfx1200".to_owned());
        if !arch.starts_with("gfx") || arch.len() > 16 {
            return Err(bad("MOSS_NVIDIA_ARCH", &arch, "gfx1200 or the like"));
        }
        let drop_wait = match var("MOSS_NVIDIA_DROP_WAIT") {
            None => None,
            Some(text) => Some(
                wait(&text)
                    .ok_or_else(|| bad("MOSS_NVIDIA_DROP_WAIT", &text, "1:3 or host:3 or the like"))?,
            ),
        };
        let drop_copy = match var("MOSS_NVIDIA_DROP_COPY") {
            None => None,
            Some(text) => {
                let n = text.parse().ok().filter(|&n| n > 0);
                Some(n.ok_or_else(|| bad("MOSS_NVIDIA_DROP_COPY", &text, "a number from 1"))?)
            }
        };
        Ok(Self {
            ptx: var("MOSS_PTX").filter(|text| !text.is_empty()).map(PathBuf::from),
            arch,
            stats: flag("MOSS_NVIDIA_STATS")?,
            check: flag("MOSS_NVIDIA_CHECK")?,
            lines: flag("MOSS_NVIDIA_LINES")?,
            drop_wait,
            drop_copy,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(name: &str, value: &str) -> Result<Config, String> {
        Config::from_env(|asked| (asked == name).then(|| value.to_owned()))
    }

    #[test]
    fn switches_are_read() {
        let none = Config::from_env(|_| None).expect("valid");
        assert_eq!(
            (none.arch.as_str(), &none.ptx, none.check, none.drop_wait),
            ("gfx1200", &None, false, None)
        );
        assert_eq!(of("MOSS_PTX", "/p").expect("valid").ptx, Some("/p".into()));
        assert_eq!(of("MOSS_NVIDIA_ARCH", "gfx1100").expect("valid").arch, "gfx1100");
        assert!(of("MOSS_NVIDIA_STATS", "1").expect("valid").stats);
        let dropped = |text| of("MOSS_NVIDIA_DROP_WAIT", text).expect("valid").drop_wait;
        assert_eq!(dropped("2:13"), Some((Waiter::Stream(2), 13)));
        assert_eq!(dropped("host:1"), Some((Waiter::Host, 1)));
        assert_eq!(of("MOSS_NVIDIA_DROP_COPY", "4").expect("valid").drop_copy, Some(4));
    }

    #[test]
    fn what_is_not_understood_is_named() {
        for (name, value) in [
            ("MOSS_NVIDIA_ARCH", "sm_90"),
            ("MOSS_NVIDIA_STATS", "yes"),
            ("MOSS_NVIDIA_CHECK", "2"),
            ("MOSS_NVIDIA_LINES", ""),
            ("MOSS_NVIDIA_DROP_WAIT", "3"),
            ("MOSS_NVIDIA_DROP_WAIT", "0:1"),
            ("MOSS_NVIDIA_DROP_WAIT", "1:0"),
            ("MOSS_NVIDIA_DROP_WAIT", "device:1"),
            ("MOSS_NVIDIA_DROP_COPY", "0"),
        ] {
            let error = of(name, value).expect_err(name);
            assert!(error.contains(name) && error.contains(&format!("{value:?}")), "{error}");
        }
    }
}
