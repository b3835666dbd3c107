//! The memory that a process can still take, as Linux tells it: of the machine, of its control groups and of its own limit.

use std::path::{Path, PathBuf};

/// A size for messages: GiB with two digits, MiB with one below 64 MiB, bytes below 64 KiB.
pub fn human(bytes: u64) -> String {
    match bytes {
        0..0x1_0000 => format!("{bytes} bytes"),
        0x1_0000..0x400_0000 => format!("{:.1} MiB", bytes as f64 / f64::from(1 << 20)),
        _ => format!("{:.2} GiB", bytes as f64 / f64::from(1 << 30)),
    }
}

/// Where the files of this machine are; a test has its own below another root.
struct Files<'a>(&'a Path);

/// Memory that can be taken without swapping, in bytes: `MemAvailable`, or what the control groups (version 1 or 2, with all
/// above them) or the limit on the address space leave when that is less. `root` is `/`. `u64::MAX` where nothing can be read.
pub fn available(root: &Path) -> u64 {
    let files = Files(root);
    let all = [files.meminfo(), files.cgroup_v2(), files.cgroup_v1(), files.address_space()];
    all.into_iter().flatten().min().unwrap_or(u64::MAX)
}

impl Files<'_> {
    fn read(&self, absolute: &Path) -> Option<String> {
        std::fs::read_to_string(self.0.join(absolute.strip_prefix("/").unwrap_or(absolute))).ok()
    }

    fn meminfo(&self) -> Option<u64> {
        kib(&self.read(Path::new("/proc/meminfo"))?, "MemAvailable:")
    }

    /// The limit on the address space, less what is in use of it.
    fn address_space(&self) -> Option<u64> {
        let limits = self.read(Path::new("/proc/self/limits"))?;
        let limit = limits.lines().find_map(|line| line.strip_prefix("Max address space"))?;
        let limit: u64 = limit.split_whitespace().next()?.parse().ok()?;
        let used = kib(&self.read(Path::new("/proc/self/status"))?, "VmSize:")?;
        Some(limit.saturating_sub(used))
    }

    fn cgroup_v2(&self) -> Option<u64> {
        let names = ["memory.max", "memory.current", "inactive_file"];
        self.least(Path::new("/sys/fs/cgroup"), &self.cgroup(|line| line.strip_prefix("0::"))?, names)
    }

    fn cgroup_v1(&self) -> Option<u64> {
        let of_memory = |line: &str| {
            let (controllers, path) = line.split_once(':')?.1.split_once(':')?;
            controllers.split(',').any(|name| name == "memory").then_some(path.len())
        };
        let path = self.cgroup(|line| of_memory(line).map(|length| &line[line.len() - length..]))?;
        let names = ["memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"];
        self.least(Path::new("/sys/fs/cgroup/memory"), &path, names)
    }

    /// This process's group, by the line that `pick` finds.
    fn cgroup(&self, pick: impl Fn(&str) -> Option<&str>) -> Option<PathBuf> {
        let own = self.read(Path::new("/proc/self/cgroup"))?;
        own.lines().find_map(pick).map(|path| PathBuf::from(path.trim_start_matches('/')))
    }

    /// What the limits of a group and of all above it leave. In a container the group's own folder may be the mount itself, so
    /// folders that are not there are passed over.
    fn least(&self, mount: &Path, group: &Path, [limit, usage, cached]: [&str; 3]) -> Option<u64> {
        let left = |folder: &Path| {
            let number = |name: &str| self.read(&mount.join(folder).join(name))?.trim().parse::<u64>().ok();
            let limit = number(limit)?;
            // Cached file pages count as used and are given up first.
            let stat = self.read(&mount.join(folder).join("memory.stat")).unwrap_or_default();
            let line = stat.lines().find_map(|line| line.strip_prefix(cached)?.trim().parse::<u64>().ok());
            let used = number(usage).unwrap_or(0).saturating_sub(line.unwrap_or(0));
            Some(limit.saturating_sub(used))
        };
        group.ancestors().filter_map(left).min()
    }
}

/// A line's number of KiB, in bytes.
fn kib(text: &str, name: &str) -> Option<u64> {
    let rest = text.lines().find_map(|line| line.strip_prefix(name))?;
    rest.trim().trim_end_matches("kB").trim().parse::<u64>().ok().map(|kib| kib << 10)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What is available on a machine with these files.
    fn machine(files: &[(&str, &str)]) -> u64 {
        let root = tempfile::tempdir().unwrap();
        for (path, text) in files {
            let path = root.path().join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        }
        available(root.path())
    }

    const MEMINFO: (&str, &str) = ("proc/meminfo", "MemTotal: 100 kB\nMemAvailable:   2048 kB\n");

    #[test]
    fn the_least_of_all_counts() {
        assert_eq!(machine(&[]), u64::MAX);
        assert_eq!(machine(&[MEMINFO]), 2 << 20);
        let limits =
            ("proc/self/limits", "Max address space         1000000              unlimited   bytes\n");
        assert_eq!(
            machine(&[MEMINFO, limits, ("proc/self/status", "VmSize:\t  500 kB\n")]),
            1_000_000 - 512_000
        );
        let limits =
            ("proc/self/limits", "Max address space         unlimited            unlimited   bytes\n");
        assert_eq!(machine(&[MEMINFO, limits, ("proc/self/status", "VmSize:\t  500 kB\n")]), 2 << 20);
    }

    #[test]
    fn a_limit_of_version_2_may_be_set_on_any_group_above() {
        let own = [
            MEMINFO,
            ("proc/self/cgroup", "0::/a/b\n"),
            ("sys/fs/cgroup/a/b/memory.max", "max\n"),
            ("sys/fs/cgroup/a/memory.max", "1048576\n"),
            ("sys/fs/cgroup/a/memory.current", "524288\n"),
            ("sys/fs/cgroup/a/memory.stat", "anon 1\ninactive_file 24288\n"),
        ];
        assert_eq!(machine(&own), 1_048_576 - 500_000);
        // In a container's namespace the group is the mount.
        let container = [MEMINFO, ("proc/self/cgroup", "0::/\n"), ("sys/fs/cgroup/memory.max", "1000000\n")];
        assert_eq!(machine(&container), 1_000_000);
    }

    #[test]
    fn a_limit_of_version_1_is_found_with_and_without_a_namespace() {
        let own = ("proc/self/cgroup", "12:cpu,cpuacct:/x\n5:memory:/docker/ab\n1:name=systemd:/y\n0::/z\n");
        let place = |folder: &str, limit: &'static str| {
            let file = |name: &str| format!("sys/fs/cgroup/memory{folder}/memory.{name}");
            let files = [file("limit_in_bytes"), file("usage_in_bytes"), file("stat")];
            let texts = [limit, "600000", "inactive_file 1\ntotal_inactive_file 100000\n"];
            machine(&[MEMINFO, own, (&files[0], texts[0]), (&files[1], texts[1]), (&files[2], texts[2])])
        };
        assert_eq!(place("/docker/ab", "1000000"), 500_000);
        assert_eq!(place("/docker", "1000000"), 500_000);
        assert_eq!(place("", "1000000"), 500_000);
        // No limit is a large number.
        assert_eq!(place("/docker/ab", "9223372036854771712"), 2 << 20);
    }
}
