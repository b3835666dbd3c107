//! What each option takes, and in which words it refuses the rest.

use super::check::*;
use super::*;

fn size(list: &[&str]) -> Result<(u32, u32)> {
    let cli = Cli::try_parse_from([&["moss"], list].concat()).unwrap();
    picture_size(&cli.generate, (1024, 1024))
}

fn usage<T: std::fmt::Debug>(result: Result<T>) -> String {
    match result {
        Err(CliError::Usage(message)) => message,
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
    assert!(usage(size(&["--width", "0"])).contains("the nearest is 16"));
    assert!(usage(size(&["--size", "4112x16"])).contains("4096"));
    assert!(usage(size(&["--size", "4096x4096"])).contains("megapixels"));
    assert!(usage(size(&["--size", "big"])).contains("WIDTHxHEIGHT"));
}

#[test]
fn numbers_are_checked() {
    assert_eq!(steps(4).unwrap(), 4);
    assert!(usage(steps(0)).contains("--steps"));
    assert!(usage(steps(-3)).contains("-3"));
    assert!(usage(steps(1_000_000)).contains("1 to 10000"));
    assert_eq!(threads(1024).unwrap(), 1024);
    assert!(usage(threads(0)).contains("1 to 1024") && usage(threads(5000)).contains("5000"));
    assert!(usage(cfg(f32::NAN)).contains("--cfg"));
    assert!(usage(cfg(-1.0)).contains("--cfg"));
    assert!(usage(shift(0.0)).contains("--shift"));
    assert_eq!(seed(1 << 40).unwrap(), 1 << 40);
    assert!(seed(-1).unwrap() < 1 << 32);
    assert!(usage(seed(-2)).contains("--seed"));
    assert!(usage(seed(1 << 64)).contains("--seed"));
    assert!(usage(progress("--skip-stop", 1.5)).contains("--skip-stop"));
    assert!(usage(max_seq(0)).contains("--max-seq"));
    assert_eq!(vram_budget(1.5).unwrap(), 3 << 29);
    assert!(usage(vram_budget(0.0)).contains("--vram-budget"));
    assert!(usage(vram_budget(f64::INFINITY)).contains("inf"));
}

#[test]
fn skip_layers_are_sorted_and_in_range() {
    assert_eq!(skip_layers("24, 22,22", 42).unwrap(), [22, 24]);
    assert!(skip_layers("", 42).unwrap().is_empty());
    assert!(usage(skip_layers("42", 42)).contains("0 to 41"));
    assert!(usage(skip_layers("x", 42)).contains("\"x\""));
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
