//! The real binary and what it reads: records, arrays, prompts and model folders that are not as they should be.

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use moss_golden::synth::{self, Preset};

/// A folder to work in, with a synthetic model `tiny`.
struct Place {
    folder: tempfile::TempDir,
}

impl Place {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        synth::write(&Preset::Tiny.sizes(), 1, &folder.path().join("tiny")).unwrap();
        Self { folder }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn read(&self, name: &str) -> Vec<u8> {
        fs::read(self.path(name)).unwrap()
    }

    fn write(&self, name: &str, bytes: impl AsRef<[u8]>) {
        fs::write(self.path(name), bytes).unwrap();
    }

    fn moss(&self, args: &[&str]) -> Output {
        self.fed(args, b"")
    }

    /// Runs the program with `input` on its standard input.
    fn fed(&self, args: &[&str], input: &[u8]) -> Output {
        let mut child = Command::new(env!("CARGO_BIN_EXE_moss"))
            .current_dir(self.folder.path())
            .args(args)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        // A program that refuses its options reads nothing.
        let _ = child.stdin.take().unwrap().write_all(input);
        child.wait_with_output().unwrap()
    }

    /// A picture of the model `tiny`, 32x32 in 2 steps.
    fn draw(&self, args: &[&str]) -> Output {
        let small = ["--model", "tiny", "--backend", "cpu", "--size", "32x32", "--steps", "2"];
        self.moss(&[&small[..], args].concat())
    }

    /// Refusal of [`Self::draw`] with `args`: its one line.
    fn refusal(&self, args: &[&str], code: i32) -> String {
        refused(&self.draw(args), code)
    }
}

fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

#[track_caller]
fn done(output: Output) -> Output {
    assert!(output.status.success(), "{}", stderr(&output));
    output
}

/// The complaint, which is all that follows the notes of a start.
#[track_caller]
fn refused(output: &Output, code: i32) -> String {
    let text = stderr(output);
    assert_eq!(output.status.code(), Some(code), "{text}");
    let last = text.lines().last().unwrap_or_default();
    last.strip_prefix("moss: ").unwrap_or_else(|| panic!("{text}")).to_string()
}

/// An npy file of f32, with a header by hand: the tests must not share the program's writer.
fn npy(shape: &[usize], data: &[f32]) -> Vec<u8> {
    let shape: String = shape.iter().map(|n| format!("{n}, ")).collect();
    let mut header = format!("{{'descr': '<f4', 'fortran_order': False, 'shape': ({shape}), }}");
    header.push_str(&" ".repeat(118 - 1 - header.len()));
    header.push('\n');
    let mut bytes = b"\x93NUMPY\x01\x00".to_vec();
    bytes.extend((header.len() as u16).to_le_bytes());
    bytes.extend(header.as_bytes());
    bytes.extend(data.iter().flat_map(|x| x.to_le_bytes()));
    bytes
}

fn noise(change: impl Fn(usize) -> f32) -> Vec<u8> {
    let data: Vec<f32> = (0..128 * 4).map(change).collect();
    npy(&[128, 2, 2], &data)
}

/// The record in a picture.
fn record(picture: &Path) -> serde_json::Map<String, serde_json::Value> {
    let file = std::io::BufReader::new(fs::File::open(picture).unwrap());
    let reader = png::Decoder::new(file).read_info().unwrap();
    let texts = &reader.info().uncompressed_latin1_text;
    let json = &texts.iter().find(|text| text.keyword == "moss").unwrap().text;
    serde_json::from_str(json).unwrap()
}

/// A PNG of one pixel with a record.
fn picture_with(record: &str) -> Vec<u8> {
    let mut bytes = Vec::new();
    let mut encoder = png::Encoder::new(&mut bytes, 1, 1);
    encoder.add_text_chunk("moss".into(), record.into()).unwrap();
    encoder.write_header().unwrap().write_image_data(&[0]).unwrap();
    bytes
}

#[test]
fn a_record_gives_the_same_bytes_under_another_name_of_the_model_and_none_with_another_configuration() {
    let place = Place::new();
    done(place.draw(&["--prompt", "an apple", "--negative", "blur", "-o", "a.png"]));
    fs::rename(place.path("tiny"), place.path("other")).unwrap();
    let from = ["--from", "a.png", "--model", "other", "--backend", "cpu", "-o", "again.png"];
    done(place.moss(&from));
    assert!(place.read("a.png") == place.read("again.png"));
    for (file, old, new) in [
        ("transformer/config.json", "\"rope_base\": 10000.0", "\"rope_base\": 20000.0"),
        ("tokenizer/tokenizer_config.json", "{", "{ "),
    ] {
        let path = place.path("other").join(file);
        let whole = fs::read_to_string(&path).unwrap();
        assert!(whole.contains(old), "{whole}");
        fs::write(&path, whole.replacen(old, new, 1)).unwrap();
        let message = refused(&place.moss(&from), 1);
        assert!(message.starts_with("--from a.png: record field \"model\" is "), "{message}");
        fs::write(&path, whole).unwrap();
    }
    done(place.moss(&from));
}

#[test]
fn a_record_that_cannot_be_reproduced_is_refused_by_its_field() {
    let place = Place::new();
    done(place.draw(&["--prompt", "an apple", "-o", "a.png"]));
    let good = record(&place.path("a.png"));
    let from = ["--from", "b.png", "--model", "tiny", "--backend", "cpu", "-o", "again.png"];
    for (field, value, reason) in [
        ("sampler", "\"heun\"", " is \"heun\", \"euler\" is supported"),
        ("lora", "\"x\"", " is \"x\", not known to this program"),
        ("steps", "1000000000000000", ": 1000000000000000, 1 to 10000 expected"),
        ("skip_layers", "[99]", ": 99, this model has blocks 0 to 2"),
        ("width", "1000", ": 1000 is no multiple of 16; the nearest are 992 and 1008"),
        ("cfg", "null", " is null, a number expected"),
    ] {
        let mut changed = good.clone();
        changed.insert(field.into(), serde_json::from_str(value).unwrap());
        place.write("b.png", picture_with(&serde_json::Value::Object(changed).to_string()));
        let message = refused(&place.moss(&from), 1);
        assert_eq!(message, format!("--from b.png: record field \"{field}\"{reason}"));
    }
    for (record, reason) in [
        ("[]", "the moss record is not a JSON object"),
        ("{\"cfg\": NaN}", "the moss record is not a JSON object"),
        ("{}", "record field \"program\" is missing"),
    ] {
        place.write("b.png", picture_with(record));
        assert_eq!(refused(&place.moss(&from), 1), format!("--from b.png: {reason}"));
    }
    let mut newer = good;
    newer.insert("program".into(), "moss 99.0.0".into());
    place.write("b.png", picture_with(&serde_json::Value::Object(newer).to_string()));
    let output = done(place.moss(&from));
    assert!(stderr(&output).contains("warning: --from b.png: made by moss 99.0.0, this is moss 0."));
}

#[test]
fn files_of_a_record_must_be_given_again() {
    let place = Place::new();
    place.write("n.npy", noise(|i| i as f32 / 512.0));
    place.write("m.npy", noise(|i| i as f32 / 511.0));
    done(place.moss(&["encode", "--model", "tiny", "--backend", "cpu", "-p", "an apple", "-o", "t.npy"]));
    let files = ["--text-in", "t.npy", "--noise-in", "n.npy"];
    done(place.draw(&[&files[..], &["--cfg", "1", "-o", "a.png"]].concat()));
    let from = ["--from", "a.png", "--model", "tiny", "--backend", "cpu", "-o", "again.png"];
    let message = refused(&place.moss(&from), 1);
    assert!(message.starts_with("--from a.png: record field \"text_in\" is "), "{message}");
    assert!(message.ends_with(": --text-in with that file is required"), "{message}");
    let message = refused(&place.moss(&[&from[..], &["--text-in", "t.npy"]].concat()), 1);
    assert!(message.contains("\"noise_in\"") && message.contains("--noise-in with that file"), "{message}");
    let other = ["--text-in", "t.npy", "--noise-in", "m.npy"];
    let message = refused(&place.moss(&[&from[..], &other].concat()), 1);
    assert!(message.contains("\"noise_in\" is ") && message.contains(", --noise-in's is "), "{message}");
    done(place.moss(&[&from[..], &files].concat()));
    assert!(place.read("a.png") == place.read("again.png"));
}

#[test]
fn arrays_are_checked_before_anything_is_opened() {
    let place = Place::new();
    let value = |bad: f32| noise(move |i| if i == 5 { bad } else { i as f32 });
    let whole = noise(|i| i as f32);
    let n = whole.len();
    // Without weights the model cannot be opened: the arrays are looked at before.
    fs::remove_dir_all(place.path("tiny/vae")).unwrap();
    let cases: &[(&[u8], &str)] = &[
        (&value(f32::NAN), "element 5 of 512 is NaN, a finite number expected"),
        (&value(f32::INFINITY), "element 5 of 512 is inf, a finite number expected"),
        (&noise(|_| 1.0), "all 512 elements are 1, a picture has variance"),
        (&[&whole[..], b"xy"].concat(), &format!("has {} bytes, {n} expected", n + 2)),
        (&whole[..n - 3], &format!("has {} bytes, needs {n}", n - 3)),
        (b"hello", "not a .npy file"),
        (b"<!DOCTYPE html>", "an HTML page (the download was refused or redirected), not a .npy file"),
    ];
    for (bytes, reason) in cases {
        place.write("x.npy", bytes);
        for (option, more) in [("--noise-in", "--prompt"), ("--text-in", "--seed")] {
            let message = place.refusal(&[option, "x.npy", more, "1", "--cfg", "1", "-o", "o.png"], 1);
            assert_eq!(message, format!("{option} x.npy: {reason}"));
        }
        let args = ["decode", "--latent-in", "x.npy", "--model", "tiny", "-o", "o.png"];
        assert_eq!(refused(&place.moss(&args), 1), format!("--latent-in x.npy: {reason}"));
    }
    synth::write(&Preset::Tiny.sizes(), 1, &place.path("whole")).unwrap();
    fs::remove_dir_all(place.path("tiny")).unwrap();
    fs::rename(place.path("whole"), place.path("tiny")).unwrap();
    place.write("x.npy", npy(&[2, 3], &[0.0, 1.0, 2.0, 3.0, 4.0, 5.0]));
    let message = place.refusal(&["--text-in", "x.npy", "--cfg", "1", "-o", "o.png"], 1);
    assert_eq!(message, "--text-in x.npy: shape [2, 3], [L, 64] expected");
    let large: Vec<f32> = (0..64).map(|i| if i == 7 { 3.4e38 } else { i as f32 }).collect();
    place.write("x.npy", npy(&[1, 64], &large));
    let message = place.refusal(&["--text-in", "x.npy", "--cfg", "1", "-o", "o.png"], 1);
    assert_eq!(message, "--text-in x.npy in bf16: element 7 of 64 is inf, a finite number expected");
    assert!(!place.path("o.png").exists());
}

#[test]
fn weights_that_are_longer_than_their_header_says_are_refused() {
    let place = Place::new();
    let file = "tiny/vae/diffusion_pytorch_model.safetensors";
    let whole = place.read(file);
    place.write(file, [&whole[..], b"more"].concat());
    let message = place.refusal(&["--prompt", "x", "-o", "o.png"], 1);
    let lengths = format!("has {} bytes, {} expected", whole.len() + 4, whole.len());
    assert!(
        message.contains("diffusion_pytorch_model.safetensors") && message.contains(&lengths),
        "{message}"
    );
}

#[test]
fn options_that_contradict_each_other_are_told() {
    let place = Place::new();
    place.write("t.npy", npy(&[1, 64], &[0.0; 64]));
    let refusals: &[(&[&str], &str)] = &[
        (
            &["--prompt", "x", "--skip-start", "0.8", "--skip-stop", "0.2"],
            "--skip-start: 0.8 is above --skip-stop 0.2",
        ),
        (
            &["--text-in", "t.npy", "--cfg", "1", "--negative", "x"],
            "--text-in: the text states are given, --negative",
        ),
        (
            &["--text-in", "t.npy", "--cfg", "1", "--max-seq", "9"],
            "--text-in: the text states are given, --max-seq",
        ),
    ];
    for (args, start) in refusals {
        let message = place.refusal(&[args, &["-o", "o.png"][..]].concat(), 2);
        assert!(message.starts_with(start), "{message}");
    }
    let args = ["--prompt", "x", "--negative", "y", "--cfg"];
    let told = |cfg| stderr(&done(place.draw(&[&args[..], &[cfg, "-o", "o.png"]].concat())));
    let warning = "warning: --negative has no effect with --cfg 1";
    assert!(told("1").contains(warning) && !told("2").contains(warning));
}

#[test]
fn a_prompt_from_a_stream_or_file_loses_its_mark_and_one_newline() {
    let place = Place::new();
    let ids = |prompt: &[&str], input: &[u8]| {
        done(place.fed(&[&["tokenize", "--model", "tiny"], prompt].concat(), input)).stdout
    };
    // A template that trims would hide the newline.
    let config = place.path("tiny/tokenizer/tokenizer_config.json");
    let text = fs::read_to_string(&config).unwrap();
    let mut json: serde_json::Value = serde_json::from_str(&text).unwrap();
    json["chat_template"] = "{{ messages[0].content }}".into();
    fs::write(&config, json.to_string()).unwrap();
    let plain = ids(&["--prompt", "a red apple"], b"");
    let inputs: [&[u8]; 4] =
        [b"a red apple", b"a red apple\n", b"a red apple\r\n", b"\xef\xbb\xbfa red apple\n"];
    for input in inputs {
        assert_eq!(ids(&["--prompt", "-"], input), plain, "{input:?}");
        place.write("p.txt", input);
        assert_eq!(ids(&["--prompt-file", "p.txt"], b""), plain, "{input:?}");
    }
    for input in [&b"a red apple\n\n"[..], b" a red apple\n", b"a red apple\r", b"a red apple \n"] {
        assert_ne!(ids(&["--prompt", "-"], input), plain, "{input:?}");
    }
    assert_ne!(ids(&["--prompt", "a red apple\n"], b""), plain, "an argument is taken as it is");
}

#[cfg(unix)]
#[test]
fn what_is_no_file_of_sane_size_is_refused() {
    let place = Place::new();
    let large = fs::File::create(place.path("large")).unwrap();
    large.set_len(17 << 20).unwrap();
    let huge = fs::File::create(place.path("huge")).unwrap();
    huge.set_len(3 << 30).unwrap();
    let draw = ["--backend", "cpu", "-o", "o.png"];
    let cases: &[(&[&str], &str)] = &[
        (
            &["tokenize", "--prompt-file", "large"],
            "--prompt-file large: has 17825792 bytes, at most 16777216",
        ),
        (
            &["tokenize", "--prompt-file", "/dev/zero"],
            "--prompt-file /dev/zero: has more than 16777216 bytes",
        ),
        (&["tokenize", "--prompt-file", "tiny"], "--prompt-file tiny: is a folder, a file expected"),
        (&["inspect", "huge"], "huge: has 3221225472 bytes, at most"),
        (&["inspect", "/dev/zero"], "/dev/zero: is a pipe or a device, a file expected"),
        (&["inspect", "tiny"], "tiny: is a folder, a file expected"),
        (&["--from", "huge", "-o", "o.png"], "--from huge: has 3221225472 bytes, at most"),
        (&["--from", "/dev/zero", "-o", "o.png"], "--from /dev/zero: is a pipe or a device"),
        (
            &["decode", "--latent-in", "huge", "-o", "o.png"],
            "--latent-in huge: has 3221225472 bytes, at most",
        ),
        (
            &["decode", "--latent-in", "/dev/zero", "-o", "o.png"],
            "--latent-in /dev/zero: is a pipe or a device",
        ),
    ];
    for (args, start) in cases {
        let message = refused(&place.moss(args), 1);
        assert!(message.starts_with(start), "{args:?}: {message}");
    }
    let input = vec![b'x'; (16 << 20) + 1];
    let message = refused(&place.fed(&[&["--prompt", "-"], &draw[..]].concat(), &input), 1);
    assert_eq!(message, "--prompt -: has more than 16777216 bytes, the most that is read");
}

#[test]
fn a_picture_that_is_damaged_says_so() {
    let place = Place::new();
    done(place.draw(&["--prompt", "an apple", "-o", "a.png"]));
    let mut bytes = place.read("a.png");
    let at = bytes.windows(8).position(|w| w == b"an apple").unwrap();
    bytes[at] = b'o';
    place.write("b.png", bytes);
    for (args, start) in [
        (&["inspect", "b.png"][..], "b.png: the file is damaged"),
        (&["--from", "b.png", "-o", "o.png"], "--from b.png: the file is damaged"),
    ] {
        let message = refused(&place.moss(args), 1);
        assert_eq!(message, start, "plain words");
    }
}

/// A PNG with a text that is about a megabyte packed and 256 unpacked.
fn bomb(international: bool) -> Vec<u8> {
    let unpacked = "a".repeat(1 << 20);
    let mut bytes = Vec::new();
    let mut encoder = png::Encoder::new(&mut bytes, 1, 1);
    if international {
        let mut chunk = png::text_metadata::ITXtChunk::new("moss", unpacked.repeat(1 << 8));
        chunk.compressed = true;
        let mut writer = encoder.write_header().unwrap();
        writer.write_text_chunk(&chunk).unwrap();
        writer.write_image_data(&[0]).unwrap();
    } else {
        encoder.add_ztxt_chunk("moss".into(), unpacked.repeat(1 << 8)).unwrap();
        encoder.write_header().unwrap().write_image_data(&[0]).unwrap();
    }
    bytes
}

#[test]
fn a_text_that_unpacks_to_much_more_is_refused_in_little_memory() {
    let place = Place::new();
    for international in [false, true] {
        let bytes = bomb(international);
        assert!(bytes.len() < 2 << 20, "{}", bytes.len());
        place.write("bomb.png", bytes);
        let run = "ulimit -v 400000; exec \"$0\" \"$@\"";
        for args in [&["inspect", "bomb.png"][..], &["--from", "bomb.png", "-o", "o.png", "--backend", "cpu"]]
        {
            let mut command = Command::new("sh");
            command.args(["-c", run, env!("CARGO_BIN_EXE_moss")]).args(args);
            let message = refused(&command.current_dir(place.path("")).output().unwrap(), 1);
            assert!(
                message.contains("bomb.png: the texts in the file unpack to more than 16 MiB"),
                "{message}"
            );
        }
    }
}

#[test]
fn the_schedule_is_the_released_one_and_broken_files_are_named() {
    let place = Place::new();
    let name = "scheduler/scheduler_config.json";
    let bytes = || {
        done(place.draw(&["--prompt", "an apple", "-o", "o.png"]));
        place.read("o.png")
    };
    let released = bytes();
    place.write(&format!("tiny/{name}"), "{\"shift\": 1.0}");
    assert!(
        bytes() == released,
        "what every scheduler's file has without a word of the model's changes nothing"
    );
    fs::remove_dir_all(place.path("tiny/scheduler")).unwrap();
    fs::remove_file(place.path("tiny/model_index.json")).unwrap();
    assert!(bytes() == released, "neither file is needed");

    fs::create_dir(place.path("tiny/scheduler")).unwrap();
    let cases = [
        (name, "{", "not a JSON object: "),
        (name, "<!DOCTYPE html>", "not a JSON object: an HTML page"),
        ("model_index.json", "[]", "not a JSON object: "),
        ("model_index.json", "{\"default_steps\": 0}", "default_steps is 0, 1 to 10000 expected"),
    ];
    for (name, text, reason) in cases {
        place.write(&format!("tiny/{name}"), text);
        let message = place.refusal(&["--prompt", "x", "-o", "o.png"], 1);
        assert!(message.starts_with(&format!("--model tiny: {name}: {reason}")), "{message}");
        fs::remove_file(place.path("tiny").join(name)).unwrap();
    }
}

#[test]
fn a_model_that_is_not_as_it_should_be_is_named_with_its_option_and_file() {
    let place = Place::new();
    let refusal = |name: &str, bytes: Option<&[u8]>| {
        let file = place.path("tiny").join(name);
        let whole = fs::read(&file).unwrap();
        match bytes {
            Some(bytes) => fs::write(&file, bytes).unwrap(),
            None => fs::remove_file(&file).unwrap(),
        }
        let message = place.refusal(&["--prompt", "x", "-o", "o.png"], 1);
        fs::write(&file, whole).unwrap();
        message
    };
    let missing = "is missing: a model folder holds tokenizer/, text_encoder/, transformer/ and vae/";
    for name in ["tokenizer/tokenizer.json", "tokenizer/tokenizer_config.json", "vae/config.json"] {
        assert_eq!(refusal(name, None), format!("--model tiny: {name} {missing}"));
    }
    let pointer = &b"version https://git-lfs.github.com/spec/v1\n"[..];
    for name in ["tokenizer/tokenizer.json", "tokenizer/tokenizer_config.json", "vae/config.json"] {
        for (bytes, looks) in
            [(pointer, "a Git LFS pointer"), (b"<html>", "an HTML page"), (b"", "an empty file")]
        {
            let message = refusal(name, Some(bytes));
            let start = format!("--model tiny: {name}: ");
            assert!(message.starts_with(&start) && message.contains(looks), "{message}");
        }
    }
    let index = "transformer/diffusion_pytorch_model.safetensors.index.json";
    let message = refusal(index, Some(pointer));
    assert!(message.starts_with(&format!("--model tiny: {index}: not JSON: a Git LFS pointer")), "{message}");
    let message = refusal("tokenizer/tokenizer.json", Some(b"[]"));
    assert!(message.ends_with("tokenizer.json: something else, a JSON object expected"), "{message}");
    let weights = "vae/diffusion_pytorch_model.safetensors";
    fs::remove_file(place.path("tiny").join(weights)).unwrap();
    fs::create_dir(place.path("tiny").join(weights)).unwrap();
    let message = place.refusal(&["--prompt", "x", "-o", "o.png"], 1);
    assert_eq!(message, format!("--model tiny: {weights}: a folder, a safetensors file expected"));
    let message = refused(&place.moss(&["--prompt", "x", "-o", "o.png", "--model", "nowhere"]), 1);
    assert_eq!(message, "--model nowhere: nothing there, the folder of a MOSS-Image model expected");
}

#[test]
fn a_stage_alone_needs_its_parts_alone() {
    let place = Place::new();
    let keep = |folder: &str, parts: &[&str]| {
        synth::write(&Preset::Tiny.sizes(), 1, &place.path(folder)).unwrap();
        for entry in fs::read_dir(place.path(folder)).unwrap() {
            let path = entry.unwrap().path();
            let kept = parts.contains(&path.file_name().unwrap().to_str().unwrap());
            match (kept, path.is_dir()) {
                (true, _) => {}
                (false, true) => fs::remove_dir_all(path).unwrap(),
                (false, false) => fs::remove_file(path).unwrap(),
            }
        }
    };
    keep("vae", &["vae"]);
    keep("encoder", &["text_encoder", "tokenizer"]);
    keep("tokenizer", &["tokenizer"]);
    place.write("l.npy", noise(|i| (i as f32).sin()));
    for (part, args, written) in [
        ("vae", &["decode", "--backend", "cpu", "--latent-in", "l.npy", "-o", "o.png"][..], "o.png"),
        ("encoder", &["encode", "--backend", "cpu", "--prompt", "an apple", "-o", "o.npy"], "o.npy"),
        ("tokenizer", &["tokenize", "--prompt", "an apple"], ""),
    ] {
        let whole = done(place.moss(&[args, &["--model", "tiny"]].concat())).stdout;
        let bytes = (!written.is_empty()).then(|| place.read(written));
        let alone = done(place.moss(&[args, &["--model", part]].concat())).stdout;
        assert!(alone == whole && bytes == (!written.is_empty()).then(|| place.read(written)), "{part}");
        let none = refused(&place.moss(&[args, &["--model", "nowhere"]].concat()), 1);
        assert!(none.starts_with("--model nowhere: "), "{none}");
    }
}

#[test]
fn a_case_for_another_model_is_one_line_before_anything_runs() {
    let place = Place::new();
    let case = Path::new(env!("CARGO_MANIFEST_DIR")).join("../golden/cases/demo-apple");
    let case = case.to_str().unwrap();
    let args = ["conformance", "--quick", "--backend", "cpu", "--case", case, "--report", "r.md"];
    let output = place.moss(&[&args[..], &["--model", "tiny"]].concat());
    let message = refused(&output, 1);
    assert!(message.starts_with("--case: demo-apple: made with weights "), "{message}");
    assert_eq!(stderr(&output).lines().count(), 1);
    let output = place.moss(&[&args[..], &["--model", "nowhere"]].concat());
    assert!(refused(&output, 1).starts_with("--model nowhere: nothing there"));
    assert_eq!(stderr(&output).lines().count(), 1);
    assert!(!place.path("r.md").exists());
    fs::create_dir(place.path("case")).unwrap();
    place.write("case/case.json", "[]");
    let output = place.moss(&["conformance", "--quick", "--backend", "cpu", "--case", "case"]);
    assert_eq!(refused(&output, 1), "--case: case/case.json: not a JSON object");
}

#[test]
fn a_size_that_the_model_was_not_made_for_is_warned_of() {
    let place = Place::new();
    let told =
        |args: &[&str]| stderr(&done(place.moss(&[args, &["--prompt", "x", "--backend", "cpu"]].concat())));
    let plan = |args: &[&str]| told(&[args, &["--dry-run"]].concat());
    let only = "this model draws well at 128x128 only";
    let warning = |text: &str| text.lines().filter(|line| line.starts_with("warning: ")).count();
    assert!(plan(&["--size", "64x64"]).contains(&format!("warning: 64x64: {only}")));
    assert_eq!(warning(&plan(&[])), 0);
    let tiny = plan(&["--model", "tiny", "--size", "32x32"]);
    let range = "32x32 is below 0.25 megapixels; MOSS-Image draws well from there to 4.2";
    assert!(tiny.contains(&format!("warning: {range}")), "{tiny}");
    assert_eq!(warning(&plan(&["--model", "tiny", "--size", "2048x2048"])), 0);
    assert_eq!(warning(&plan(&["--model", "tiny"])), 0, "1024x1024 without an option");
    let demo = Path::new(env!("CARGO_MANIFEST_DIR")).join("../golden/demo/model");
    let demo = ["--model", demo.to_str().unwrap()];
    assert_eq!(warning(&plan(&demo)), 0, "the folder's own size is the default");
    let plain = ["--size", "32x32", "--steps", "1", "--no-metadata"];
    told(&[&plain[..], &["-o", "a.png"]].concat());
    told(&[&demo[..], &plain, &["-o", "b.png"]].concat());
    assert!(place.read("a.png") == place.read("b.png"), "the model inside the program is the folder's");
}
