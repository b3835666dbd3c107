use moss_hip::{Error, HipBackend, Host, Options, list_devices};
use moss_reference::backend::{Backend, HostData};

use crate::{emulated, open};

#[test]
fn devices_are_listed_and_the_discrete_one_is_taken() {
    let env = [("MOSS_EMULATE", "gfx1036,gfx1100,gfx1200"), ("MOSS_EMULATE_VRAM", "512MiB,24GiB,16GiB")];
    if !emulated("devices::devices_are_listed_and_the_discrete_one_is_taken", &env) {
        return;
    }
    let text = list_devices(&Host::current()).unwrap_or_else(|error| panic!("{error}")).to_string();
    eprintln!("{text}");
    assert!(text.contains("no code for gfx1036") && text.contains("  kernels: gfx1100 (wmma)"), "{text}");
    let backend = open(Options::default());
    assert_ne!(backend.device().arch, "gfx1036");
    assert_eq!(backend.passed_over().len(), 2);
    let asked = open(Options { device: Some("2".into()), ..Options::default() });
    assert_eq!(asked.device().arch, "gfx1200");
    let refused = HipBackend::open(Options { implementation: Some("fast".into()), ..Options::default() });
    let text = refused.err().expect("no such kernels").to_string();
    assert!(text.contains("--backend-impl fast") && text.contains("wmma"), "{text}");
    let refused = HipBackend::open(Options { device: Some("0".into()), ..Options::default() });
    assert!(matches!(refused.err(), Some(Error::Unsupported { .. })));
}

#[test]
fn no_device_is_an_error_with_a_reason() {
    if emulated("devices::no_device_is_an_error_with_a_reason", &[("MOSS_EMULATE", "none")]) {
        let error = HipBackend::open(Options::default()).err().expect("no device");
        let text = error.to_string();
        assert!(text.starts_with("no HIP device"), "{text}");
    }
}

#[test]
fn an_override_is_refused_before_anything_runs() {
    let env = [("MOSS_EMULATE", "gfx1200"), ("HSA_OVERRIDE_GFX_VERSION", "")];
    if emulated("devices::an_override_is_refused_before_anything_runs", &env) {
        assert!(matches!(HipBackend::open(Options::default()).err(), Some(Error::Override { .. })));
    }
}

#[test]
fn a_lost_device_is_fatal_and_named() {
    let env = [("MOSS_EMULATE", "gfx1200"), ("MOSS_EMULATE_LOST_AFTER", "1")];
    if !emulated("devices::a_lost_device_is_fatal_and_named", &env) {
        return;
    }
    let backend = open(Options::default());
    let x = backend.upload(HostData::F32(vec![1.0; 64]), &[64]).expect("copies still run");
    let error = (0..4).find_map(|_| backend.to_bf16(&x).and_then(|y| backend.download(&y)).err());
    let error = error.expect("the device is lost");
    let error = error.0.downcast_ref::<Error>().expect("an error of this backend");
    assert!(error.is_fatal(), "{error}");
    assert!(error.to_string().contains("to_bf16"), "{error}");
}
