//! The machine that a report was made on.

use serde::Serialize;

/// What a reader needs to know of the machine.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Machine {
    /// The CPU's name, or its architecture where the system does not tell.
    pub cpu: String,
    /// Threads that the process may use.
    pub cores: usize,
    /// System and kernel.
    pub os: String,
}

impl Machine {
    /// This machine.
    pub fn this() -> Self {
        let read = |path| std::fs::read_to_string(path).unwrap_or_default();
        let cpu = value(&read("/proc/cpuinfo"), "model name", ':');
        let name = value(&read("/etc/os-release"), "PRETTY_NAME", '=');
        let kernel = read("/proc/sys/kernel/osrelease").trim().to_string();
        let os = match name {
            Some(name) => format!("{}, {} {kernel}", name.trim_matches('"'), std::env::consts::OS),
            None => format!("{} {kernel}", std::env::consts::OS),
        };
        Self {
            cpu: cpu.unwrap_or_else(|| std::env::consts::ARCH.into()),
            cores: std::thread::available_parallelism().map_or(1, usize::from),
            os: os.trim().to_string(),
        }
    }
}

/// The value of the first line `key <separator> value`.
fn value(text: &str, key: &str, separator: char) -> Option<String> {
    text.lines()
        .filter_map(|line| line.split_once(separator))
        .find(|(name, _)| name.trim() == key)
        .map(|(_, value)| value.trim().to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_value_of_a_key_is_taken() {
        let text = "processor\t: 0\nmodel name\t: One: 2 GHz\nmodel name\t: Two\n";
        assert_eq!(value(text, "model name", ':').as_deref(), Some("One: 2 GHz"));
        assert_eq!(value(text, "flags", ':'), None);
    }

    #[test]
    fn this_machine_has_a_name() {
        let machine = Machine::this();
        assert!(!machine.cpu.is_empty() && machine.cores > 0 && !machine.os.is_empty());
    }
}
