//! What the backend reads from the machine outside HIP: environment, device files, sysfs, memory of the host.
//!
//! Every path is below a root and every variable in a table, so that tests can bring their own machine.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};

use crate::error::Error;

type Open = dyn Fn(&Path) -> io::Result<()> + Send + Sync;

/// The machine as the backend sees it.
pub struct Host {
    root: PathBuf,
    env: BTreeMap<String, String>,
    /// Opens a device file for reading and writing and closes it again.
    open: Box<Open>,
}

/// Memory of one device by the driver's own count in sysfs; 0 where a file is missing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SysfsMemory {
    /// Bytes of VRAM.
    pub vram_total: u64,
    /// Bytes of VRAM in use by everybody, the desktop included.
    pub vram_used: u64,
    /// Host memory that the GPU may map (pinned memory counts here).
    pub gtt_total: u64,
    /// Mapped host memory.
    pub gtt_used: u64,
}

/// Variables that hide devices, in the order in which the runtime applies them.
pub(crate) const VISIBILITY: [&str; 4] =
    ["ROCR_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "CUDA_VISIBLE_DEVICES", "GPU_DEVICE_ORDINAL"];

impl Host {
    /// This machine.
    pub fn current() -> Self {
        Self {
            root: PathBuf::from("/"),
            env: std::env::vars_os()
                .filter_map(|(k, v)| Some((k.into_string().ok()?, v.to_string_lossy().into_owned())))
                .collect(),
            open: Box::new(|path| std::fs::OpenOptions::new().read(true).write(true).open(path).map(drop)),
        }
    }

    /// A machine whose files lie below `root`, with no environment.
    #[cfg(test)]
    pub(crate) fn with_root(root: &Path) -> Self {
        Self { root: root.to_owned(), env: BTreeMap::new(), ..Self::current() }
    }

    /// The same with a variable.
    #[cfg(test)]
    pub(crate) fn set(mut self, name: &str, value: &str) -> Self {
        self.env.insert(name.to_owned(), value.to_owned());
        self
    }

    /// The same with another answer to opening device files.
    #[cfg(test)]
    pub(crate) fn opening(mut self, open: impl Fn(&Path) -> io::Result<()> + Send + Sync + 'static) -> Self {
        self.open = Box::new(open);
        self
    }

    /// Value of a variable.
    pub(crate) fn env(&self, name: &str) -> Option<String> {
        self.env.get(name).cloned()
    }

    /// An absolute path below the root.
    pub(crate) fn path(&self, absolute: &str) -> PathBuf {
        self.root.join(absolute.trim_start_matches('/'))
    }

    fn read(&self, absolute: &str) -> Option<String> {
        std::fs::read_to_string(self.path(absolute)).ok()
    }

    fn number(&self, absolute: &str) -> u64 {
        self.read(absolute).and_then(|text| text.trim().parse().ok()).unwrap_or(0)
    }

    /// Whether this process runs in a container.
    fn in_container(&self) -> bool {
        ["/.dockerenv", "/run/.containerenv"].iter().any(|path| self.path(path).exists())
            || self.env("container").is_some()
            || self
                .read("/proc/1/cgroup")
                .is_some_and(|text| text.contains("docker") || text.contains("kubepods"))
    }

    /// Why no device can be used, when the runtime finds none: missing or closed device files, then hidden devices.
    pub(crate) fn why_no_device(&self, library: &Path) -> Error {
        self.device_files()
            .err()
            .or_else(|| self.hidden())
            .unwrap_or_else(|| Error::NoDevice { library: library.to_owned() })
    }

    /// Opens `/dev/kfd` and the render nodes as the runtime will.
    fn device_files(&self) -> Result<(), Error> {
        self.openable(&self.path("/dev/kfd"))?;
        let mut nodes: Vec<PathBuf> = std::fs::read_dir(self.path("/dev/dri"))
            .into_iter()
            .flatten()
            .flatten()
            .map(|entry| entry.path())
            .filter(|path| path.file_name().is_some_and(|n| n.to_string_lossy().starts_with("renderD")))
            .collect();
        nodes.sort();
        if nodes.is_empty() {
            nodes.push(self.path("/dev/dri/renderD128"));
        }
        // One open node is enough: others may belong to other drivers or users.
        let mut first = None;
        for node in &nodes {
            match self.openable(node) {
                Ok(()) => return Ok(()),
                Err(error) => first = first.or(Some(error)),
            }
        }
        Err(first.expect("at least one node was tried"))
    }

    fn openable(&self, path: &Path) -> Result<(), Error> {
        let Err(error) = (self.open)(path) else { return Ok(()) };
        let container = self.in_container();
        match error.kind() {
            io::ErrorKind::NotFound => {
                let way_out = if container {
                    "In a container, pass the devices in: --device=/dev/kfd --device=/dev/dri"
                } else {
                    "The amdgpu kernel driver with KFD is not loaded: check `lsmod | grep amdgpu` and `dmesg | grep amdgpu`"
                };
                Err(Error::NoDriver { path: path.to_owned(), way_out: way_out.to_owned() })
            }
            io::ErrorKind::PermissionDenied => {
                let group = self.owning_group(path);
                let user = self.env("USER").unwrap_or_else(|| "$USER".to_owned());
                let way_out = if container {
                    format!("In a container, start it with --group-add {group}")
                } else {
                    format!("Run `sudo usermod -aG {group} {user}`, then log out and in again")
                };
                Err(Error::NoPermission { path: path.to_owned(), group, way_out })
            }
            _ => Err(Error::Read { path: path.to_owned(), source: error }),
        }
    }

    /// Name of the group that owns a file, or its number when it has no name here.
    fn owning_group(&self, path: &Path) -> String {
        use std::os::unix::fs::MetadataExt as _;
        let Ok(meta) = std::fs::metadata(path) else { return "render".to_owned() };
        let id = meta.gid().to_string();
        let groups = self.read("/etc/group").unwrap_or_default();
        groups
            .lines()
            .map(|line| line.split(':').collect::<Vec<_>>())
            .find(|fields| fields.get(2) == Some(&id.as_str()))
            .map_or(id.clone(), |fields| fields[0].to_owned())
    }

    fn hidden(&self) -> Option<Error> {
        let variables: Vec<_> = VISIBILITY.iter().filter_map(|&name| Some((name, self.env(name)?))).collect();
        (!variables.is_empty()).then_some(Error::Hidden { variables })
    }

    /// Refuses to run under `HSA_OVERRIDE_GFX_VERSION`, also when it is set to nothing.
    pub(crate) fn check_override(&self, supported: &[String]) -> Result<(), Error> {
        match self.env("HSA_OVERRIDE_GFX_VERSION") {
            None => Ok(()),
            Some(value) => Err(Error::Override { value, supported: supported.to_vec() }),
        }
    }

    /// The driver's count of a device's memory; `pci` is its address, `0000:03:00.0`.
    pub(crate) fn device_memory(&self, pci: &str) -> SysfsMemory {
        let file = |name: &str| self.number(&format!("/sys/bus/pci/devices/{pci}/{name}"));
        SysfsMemory {
            vram_total: file("mem_info_vram_total"),
            vram_used: file("mem_info_vram_used"),
            gtt_total: file("mem_info_gtt_total"),
            gtt_used: file("mem_info_gtt_used"),
        }
    }

    /// Host memory that can be taken without swapping.
    pub(crate) fn available_memory(&self) -> u64 {
        moss_reference::memory::available(&self.root)
    }

    /// The limit on locked memory, for the message when pinning is refused.
    pub(crate) fn locked_memory_limit(&self) -> String {
        let limits = self.read("/proc/self/limits").unwrap_or_default();
        limits
            .lines()
            .find_map(|line| line.strip_prefix("Max locked memory"))
            .and_then(|rest| rest.split_whitespace().next())
            .unwrap_or("unknown")
            .to_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn machine(files: &[(&str, &str)]) -> (tempfile::TempDir, Host) {
        let root = tempfile::tempdir().unwrap();
        for (path, text) in files {
            let path = root.path().join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        }
        let host = Host::with_root(root.path());
        (root, host)
    }

    fn why(host: &Host) -> String {
        host.why_no_device(Path::new("/opt/rocm/lib/libamdhip64.so.7")).to_string()
    }

    #[test]
    fn a_missing_driver_is_told_from_a_missing_container_option() {
        let (_root, host) = machine(&[]);
        let text = why(&host);
        assert!(text.contains("dev/kfd does not exist") && text.contains("lsmod"), "{text}");
        let (_root, host) = machine(&[(".dockerenv", "")]);
        let text = why(&host);
        assert!(text.contains("--device=/dev/kfd --device=/dev/dri"), "{text}");
        let (_root, host) = machine(&[("dev/kfd", "")]);
        let text = why(&host);
        assert!(text.contains("dev/dri/renderD128 does not exist"), "{text}");
    }

    #[test]
    fn a_closed_device_file_names_its_own_group_and_the_way_in() {
        use std::os::unix::fs::MetadataExt as _;
        let (root, host) = machine(&[("dev/kfd", ""), ("etc/passwd", "")]);
        let gid = std::fs::metadata(root.path().join("dev/kfd")).unwrap().gid();
        std::fs::write(root.path().join("etc/group"), format!("video:x:99999:\nrenderers:x:{gid}:\n"))
            .unwrap();
        let closed = |_: &Path| Err(io::Error::from(io::ErrorKind::PermissionDenied));
        let host = host.set("USER", "ada").opening(closed);
        let text = why(&host);
        assert!(
            text.contains("group renderers") && text.contains("sudo usermod -aG renderers ada"),
            "{text}"
        );
        std::fs::write(root.path().join(".dockerenv"), "").unwrap();
        let text = why(&host);
        assert!(text.contains("--group-add renderers"), "{text}");
    }

    #[test]
    fn one_open_render_node_is_enough() {
        let (_root, host) =
            machine(&[("dev/kfd", ""), ("dev/dri/renderD128", ""), ("dev/dri/renderD129", "")]);
        let host = host.opening(|path| {
            if path.ends_with("renderD128") { Err(io::ErrorKind::PermissionDenied.into()) } else { Ok(()) }
        });
        assert!(why(&host).contains("nothing hides one"));
    }

    #[test]
    fn hidden_devices_are_named_with_all_variables() {
        let (_root, host) = machine(&[("dev/kfd", ""), ("dev/dri/renderD128", "")]);
        let host = host.set("ROCR_VISIBLE_DEVICES", "1").set("HIP_VISIBLE_DEVICES", "1");
        let text = why(&host);
        assert!(text.contains(r#"ROCR_VISIBLE_DEVICES="1", HIP_VISIBLE_DEVICES="1""#), "{text}");
        for name in VISIBILITY {
            let (_root, host) = machine(&[("dev/kfd", ""), ("dev/dri/renderD128", "")]);
            assert!(why(&host.set(name, "")).contains(&format!("{name}=\"\"")));
        }
    }

    #[test]
    fn an_override_is_refused_even_when_empty() {
        let (_root, host) = machine(&[]);
        let supported = ["gfx1100".to_owned()];
        assert!(host.check_override(&supported).is_ok());
        let text =
            host.set("HSA_OVERRIDE_GFX_VERSION", "").check_override(&supported).unwrap_err().to_string();
        assert!(text.contains("gfx000") && text.contains("native code for gfx1100"), "{text}");
        let (_root, host) = machine(&[]);
        let text = host
            .set("HSA_OVERRIDE_GFX_VERSION", "11.0.0")
            .check_override(&supported)
            .unwrap_err()
            .to_string();
        assert!(text.contains("\"11.0.0\""), "{text}");
    }

    #[test]
    fn sysfs_and_limits_are_read() {
        let device = "sys/bus/pci/devices/0000:03:00.0";
        let (_root, host) = machine(&[
            (&format!("{device}/mem_info_vram_total"), "1000\n"),
            (&format!("{device}/mem_info_vram_used"), "400\n"),
            (&format!("{device}/mem_info_gtt_total"), "70\n"),
            ("proc/self/limits", "Limit  Soft\nMax locked memory         8388608    8388608  bytes\n"),
        ]);
        let memory = host.device_memory("0000:03:00.0");
        assert_eq!(memory, SysfsMemory { vram_total: 1000, vram_used: 400, gtt_total: 70, gtt_used: 0 });
        assert_eq!(host.locked_memory_limit(), "8388608");
    }
}
