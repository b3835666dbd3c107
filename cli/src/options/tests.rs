//! What each option takes, and in which words it refuses the rest.

use moss_reference::run::Settings;

use super::check::*;
use super::*;
use crate::commands::generate;

/// The settings of these options where the official ones hold without them.
fn settings(list: &[&str]) -> Result<Settings> {
    let cli = Cli::try_parse_from([&["moss", "--prompt", "x"], list].concat()).unwrap();
    generate::settings(&cli.generate, Settings::default(), 42).map(|(settings, _)| settings)
}

fn size(list: &[&str]) -> Result<(u32, u32)> {
    settings(list).map(|settings| (settings.width, settings.height))
}

fn usage<T: std::fmt::Debug>(result: Result<T>) -> String {
    match result {
        Err(error @ (CliError::Usage(_) | CliError::Option { .. })) => error.message(),
        other => panic!("a usage error expected, {other:?} found"),
    }
}

#[test]
fn sizes_name_the_nearest_legal_ones() {
    assert_eq!(size(&[]).unwrap(), (1024, 1024));
    assert_eq!(size(&["--size", "64x48"]).unwrap(), (64, 48));
    assert_eq!(size(&["--width", "32"]).unwrap(), (32, 1024));
    let message = usage(size(&["--size", "1000x512"]));
    assert!(message.contains("992 and 1008"), "{message}");
    assert!(usage(size(&["--height", "7"])).contains("the nearest is 16"));
    assert_eq!(usage(size(&["--width", "0"])), "--width: 0, a multiple of 16 from 16 to 4096 expected");
    assert_eq!(usage(size(&["--size", "4112x16"])), "--size (width): 4112 is over 4096, the longest side");
    assert!(usage(size(&["--size", "4096x4096"])).starts_with("--size: 4096x4096 is 16.78 megapixels"));
    assert!(usage(size(&["-W", "4096", "-H", "4096"])).starts_with("--width and --height: 4096x4096"));
    assert!(usage(size(&["--size", "big"])).contains("WIDTHxHEIGHT"));
}

#[test]
fn numbers_are_checked() {
    for (option, value, reason) in [
        ("--steps", "0", "0, 1 to 10000 expected"),
        ("--steps", "-3", "-3, 1 to 10000 expected"),
        ("--steps", "1000000", "1000000, 1 to 10000 expected"),
        ("--cfg", "NaN", "NaN, a finite number from 0 expected"),
        ("--cfg", "-1", "-1, a finite number from 0 expected"),
        ("--shift", "0", "0, a finite number above 0 expected"),
        ("--skip-stop", "1.5", "1.5, 0 to 1 expected"),
        ("--max-seq", "0", "0, at least 1 expected"),
    ] {
        assert_eq!(usage(settings(&[option, value])), format!("{option}: {reason}"));
    }
    assert_eq!(settings(&["--steps", "4"]).unwrap().steps, 4);
    assert_eq!(threads(1024).unwrap(), 1024);
    assert!(usage(threads(0)).contains("1 to 1024") && usage(threads(5000)).contains("5000"));
    assert_eq!(seed(1 << 40).unwrap(), 1 << 40);
    assert!(seed(-1).unwrap() < 1 << 32);
    assert!(usage(seed(-2)).contains("--seed"));
    assert!(usage(seed(1 << 64)).contains("--seed"));
    assert_eq!(max_seq(None).unwrap(), 4096);
    assert_eq!(usage(max_seq(Some(0))), "--max-seq: 0, at least 1 expected");
}

#[test]
fn sizes_of_memory_have_units() {
    for (text, size) in [
        ("8GiB", 8 << 30),
        ("6", 6 << 30),
        ("6.5", 13 << 29),
        ("6000MiB", 6000 << 20),
        ("0.25 gib", 1 << 28),
        ("1.5TiB", 3 << 39),
        ("512KiB", 512 << 10),
        ("8GB", 8_000_000_000),
        ("500mb", 500_000_000),
    ] {
        assert_eq!(bytes(text).unwrap(), size, "{text}");
    }
    for text in ["", "GiB", "8XB", "inf", "nan", "8 GiB more", "1e400", "--trace", "eight"] {
        let told = bytes(text);
        assert!(told.is_err_and(|reason| reason.contains("8GiB")) || text == "1e400", "{text}");
    }
    for text in ["0", "-1", "-8GiB", "0.0000001KiB"] {
        assert_eq!(bytes(text).unwrap_err(), "more than 0 bytes expected", "{text}");
    }
}

#[test]
fn skip_layers_are_sorted_and_in_range() {
    let layers = |text| settings(&["--skip-layers", text]).map(|settings| settings.skip_layers);
    assert_eq!(layers("24, 22,22").unwrap(), [22, 24]);
    assert!(layers("").unwrap().is_empty());
    assert_eq!(usage(layers("42")), "--skip-layers: 42, this model has blocks 0 to 41");
    assert!(usage(layers("x")).contains("\"x\""));
}

fn refusal(list: &[&str]) -> String {
    let args: Vec<OsString> = std::iter::once(&"moss").chain(list).map(OsString::from).collect();
    complaint(&parse(&args).unwrap_err())
}

#[test]
fn what_cannot_be_read_is_told_in_one_line_with_what_was_meant() {
    let cases: &[(&[&str], &str)] = &[
        (&["a", "red", "apple"], "unrecognized subcommand 'a'; a prompt is given in quotes, behind --prompt"),
        (&["--prompt", "-o", "a.png"], "--prompt: a text expected, the option -o found"),
        (&["-p", "x", "-n", "--steps", "3"], "-n: a text expected, the option --steps found"),
        (&["--promt", "x"], "unexpected argument '--promt' found; a similar argument exists: '--prompt'"),
        (&["--quiet", "decode"], "; a subcommand's options are given behind it"),
        (&["--width", "-1"], "invalid value '-1' for '--width <N>': a whole number from 0 expected"),
        (&["--threads", "-1"], "'--threads <N>': a whole number from 0 expected"),
        (&["encode", "--max-seq", "2.5"], "'--max-seq <N>': a whole number from 0 expected"),
        (&["--steps", "1.5"], "invalid value '1.5' for '--steps <N>': a whole number expected"),
        (&["--cfg", "three"], "invalid value 'three' for '--cfg <X>': a number expected"),
        (&["--cfg", "-o", "a.png"], "--cfg: a value expected, the option -o found"),
        (&["--guidance-scale", "-o", "a.png"], "--guidance-scale: a value expected, the option -o found"),
        (&["--cfg"], "a value is required for '--cfg <X>' but none was supplied"),
        (&["--vram-budget", "8XB"], "a size as 8GiB, 6000MiB or 6.5 (in GiB) expected"),
    ];
    for (list, expected) in cases {
        let found = refusal(list);
        assert!(found.ends_with(expected) && !found.contains('\n'), "{list:?}: {found}");
    }
}

#[test]
fn a_prompt_may_begin_with_a_dash_and_peers_names_are_understood() {
    let args = ["moss", "-p", "-x- a minus sign", "--negative-prompt", "--", "--cfg-scale", "2", "-W", "64"];
    let cli = parse(&args.map(OsString::from)).unwrap();
    assert_eq!(cli.generate.prompt.prompt.unwrap(), "-x- a minus sign");
    assert_eq!(cli.generate.negative.unwrap(), "--");
    assert_eq!((cli.generate.cfg, cli.generate.width), (Some(2.0), Some(64)));
    let cli = parse(&["moss", "--prompt=--steps"].map(OsString::from)).unwrap();
    assert_eq!(cli.generate.prompt.prompt.unwrap(), "--steps");
}

#[test]
fn options_of_peers_are_refused_by_name() {
    for option in ["--lora", "--init-image", "--sampler"] {
        let cli = Cli::try_parse_from(["moss", option, "x"]).unwrap();
        assert!(usage(cli.generate.unsupported.check()).contains(option));
    }
}

#[test]
fn of_a_repeated_option_the_last_wins_also_through_an_alias_and_in_commands() {
    let args = ["moss", "--steps", "1", "--num-inference-steps", "2", "--cfg-scale", "1", "--cfg", "4"];
    let more = ["-p", "a", "--prompt", "b", "-q", "--quiet", "--backend", "hip", "--backend", "cpu"];
    let all: Vec<OsString> = args.iter().chain(&more).map(OsString::from).collect();
    let cli = parse(&all).unwrap();
    assert_eq!((cli.generate.steps, cli.generate.cfg), (Some(2), Some(4.0)));
    assert_eq!(cli.generate.prompt.prompt.unwrap(), "b");
    assert_eq!(cli.generate.model.backend, BackendName::Cpu);
    let cli =
        parse(&["moss", "decode", "--latent-in", "a", "--latent-in", "b", "-o", "c"].map(OsString::from));
    let Some(Command::Decode(args)) = cli.unwrap().command else { panic!() };
    assert_eq!(args.latent_in, PathBuf::from("b"));
    for (list, quiet) in [(["moss", "-v", "-q"], true), (["moss", "-q", "-v"], false)] {
        let model = parse(&list.map(OsString::from)).unwrap().generate.model;
        assert_eq!((model.quiet, model.verbose), (quiet, !quiet));
    }
}

#[test]
fn the_declarations_hold_together() {
    command().debug_assert();
}

#[test]
fn a_gpu_option_is_known_by_its_name() {
    let first = |list: &[&str]| {
        let args: Vec<OsString> = std::iter::once(&"moss").chain(list).map(OsString::from).collect();
        parse(&args).unwrap().generate.model.gpu_option
    };
    assert_eq!(first(&["--threads", "2"]), None);
    for (list, name) in [
        (&["--trace"][..], "--trace"),
        (&["--vram-budget", "6"], "--vram-budget"),
        (&["--device-timeout", "9", "--device", "0"], "--device"),
    ] {
        assert_eq!(first(list), Some(GpuOption { name, typed: true }));
    }
}
