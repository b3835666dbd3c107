//! Every command that runs the model gives the CPU backend's bytes.

use crate::{Machine, built, cpu_pixels};

/// The demo model's picture has the CPU backend's pixels, and says what made it.
fn same_pixels(arch: &str) {
    if !built(&[arch]) {
        return;
    }
    let machine = Machine::new(arch);
    let ended = machine.hip(&[]).with(0);
    let first = ended.stderr.lines().next().unwrap_or_default().to_owned();
    assert!(first.contains(arch) && first.contains("wmma"), "{first}");
    let done = ended.done();
    assert!(done.starts_with("done: ") && done.contains("7 of 7 DiT blocks stayed on the device"), "{done}");
    let found = machine.pixels("out.png");
    assert_eq!(found.len(), 3 * 32 * 32);
    assert!(found == cpu_pixels(), "pixels on {arch} are not the CPU backend's");
    let record = machine.moss(&["inspect", "out.png"]).with(0).stdout.replace("\": ", "\":");
    assert!(record.contains(&format!("\"backend\":\"hip {arch}\"")), "{record}");
}

#[test]
fn gfx1100_makes_the_cpu_backends_picture() {
    same_pixels("gfx1100");
}

#[test]
fn gfx1200_makes_the_cpu_backends_picture() {
    same_pixels("gfx1200");
}

/// `moss encode` and `moss decode` write what they write on the CPU.
fn same_stages(arch: &str) {
    if !built(&[arch]) {
        return;
    }
    let machine = Machine::new(arch);
    let on = |backend: &str, args: &[&str], file: &str| {
        machine.moss(&[args, &["--backend", backend, "-o", file]].concat()).done();
        machine.read(file)
    };
    let encode = ["encode", "--prompt", "three green triangles, 苹果"];
    let states = on("cpu", &encode, "cpu.npy");
    assert!(on("hip", &encode, "hip.npy") == states, "text states on {arch}");

    let noise = [("--prompt", "a"), ("--size", "48x32"), ("--steps", "1"), ("--latent-out", "latents.npy")];
    let noise: Vec<&str> = noise.iter().flat_map(|(option, value)| [*option, *value]).collect();
    machine.moss(&[&noise[..], &["--backend", "cpu"]].concat()).done();
    let decode = ["decode", "--latent-in", "latents.npy"];
    let picture = on("cpu", &decode, "cpu.png");
    assert_eq!(machine.pixels("cpu.png").len(), 3 * 48 * 32);
    assert!(on("hip", &decode, "hip.png") == picture, "the decoded picture on {arch}");
}

#[test]
fn gfx1100_encodes_and_decodes_as_the_cpu_backend() {
    same_stages("gfx1100");
}

#[test]
fn gfx1200_encodes_and_decodes_as_the_cpu_backend() {
    same_stages("gfx1200");
}
