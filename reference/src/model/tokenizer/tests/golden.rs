//! The golden ids, pieces and prompts that Hugging Face's packages made; see golden/tokenizer.

use sha2::{Digest, Sha256};

use super::*;

fn hex(digest: impl AsRef<[u8]>) -> String {
    digest.as_ref().iter().map(|byte| format!("{byte:02x}")).collect()
}

fn golden_json() -> Value {
    serde_json::from_slice(&std::fs::read(golden().join("golden.json")).unwrap()).unwrap()
}

/// The ids of every golden line, by the real vocabulary where `MOSS_QWEN_TOKENIZER` names its folder, as
/// ci/tokenizer does, else by the small one.
#[test]
#[allow(clippy::print_stdout)] // The count is the result.
fn ids_equal_hugging_face() {
    let real = std::env::var_os("MOSS_QWEN_TOKENIZER").map(PathBuf::from);
    let name = if real.is_some() { "qwen3_5" } else { "small" };
    let folder = real.unwrap_or_else(|| golden().join("small"));
    let golden = golden_json();
    let found = hex(Sha256::digest(std::fs::read(folder.join("tokenizer.json")).unwrap()));
    assert_eq!(
        golden["tokenizer_json_sha256"][name], *found,
        "the golden ids are of another tokenizer.json; to make them again: {}",
        golden["command"]
    );

    let tokenizer = Tokenizer::from_folder(&folder).unwrap();
    let (lines, ids) = (json_lines("lines.jsonl"), json_lines(&format!("ids.{name}.jsonl")));
    assert_eq!((lines.len(), lines.len()), (ids.len(), golden["lines"].as_u64().unwrap() as usize));
    let mut equal = 0;
    for (line, expected) in lines.iter().zip(&ids) {
        let text = line.as_str().unwrap();
        let expected: Vec<u32> = serde_json::from_value(expected.clone()).unwrap();
        let ids = tokenizer.encode(text).unwrap();
        if ids == expected {
            equal += 1;
        } else {
            println!("{text:?}:\n  expected {expected:?}\n  found    {ids:?}");
        }
        let bytes: Vec<u8> = ids.iter().flat_map(|&id| tokenizer.decode(id).unwrap()).copied().collect();
        assert_eq!(String::from_utf8(bytes).unwrap(), added::nfc(text));
    }
    println!("{equal} of {} lines equal ({name} vocabulary, {})", lines.len(), folder.display());
    assert_eq!(equal, lines.len());
}

/// Every Unicode scalar value is normalised and split as Hugging Face's tokenizers do it.
#[test]
fn every_code_point() {
    let tokenizer = small();
    let alphabet = bytes::Alphabet::new();
    let (mut digest, mut spelled, mut count) = (Sha256::new(), String::new(), 0);
    for c in '\0'..=char::MAX {
        let text = format!("a{c}\u{301}\u{323}a{c}1 {c}");
        spelled.clear();
        let mut piece = |piece: &[u8]| {
            spelled.extend(piece.iter().map(|&byte| alphabet.characters[byte as usize]));
            spelled.push(' ');
        };
        tokenizer.pre_tokenizer.pieces(&added::nfc(&text), &mut piece).unwrap();
        spelled.pop();
        spelled.push('\n');
        digest.update(&spelled);
        count += 1;
    }
    let golden = golden_json();
    assert_eq!(golden["code_points"], count);
    assert_eq!(golden["code_points_sha256"], *hex(digest.finalize()));
}

/// Prompts through a chat template and through the default for folders without one, which is the same text.
#[test]
fn prompts_equal_transformers() {
    let folder = golden().join("small");
    let read = |name: &str| std::fs::read(folder.join(name)).unwrap();
    let source = std::fs::read_to_string(golden().join("chat_template.jinja")).unwrap();
    let rows = json_lines("prompts.jsonl");
    let (header, rows) = rows.split_first().unwrap();
    let max_seq = header["max_seq"].as_u64().unwrap() as usize;
    assert!(rows.iter().any(|row| row["total"].as_u64() > header["max_seq"].as_u64()), "one must be cut");
    for template in [None, Some(source.as_str()), Some(&source.replace('\n', "\r\n"))] {
        let tokenizer =
            Tokenizer::from_bytes(&read("tokenizer.json"), &read("tokenizer_config.json"), template).unwrap();
        for row in rows {
            let prompt = row["prompt"].as_str().unwrap();
            assert_eq!(row["text"], tokenizer.template.render(prompt).unwrap(), "{template:?}");
            let encoded = tokenizer.encode_prompt(prompt, max_seq).unwrap();
            assert_eq!(row["total"], encoded.total, "{prompt:?}");
            assert_eq!(row["ids"], serde_json::json!(encoded.ids), "{prompt:?}");
        }
    }
}

/// The template's place: its file before `chat_template` of the config, which may be a list of named ones.
#[test]
fn where_the_template_is() {
    let json = tiny().to_string();
    let render = |config: Value, template: Option<&str>| {
        let config = config.to_string();
        let tokenizer = Tokenizer::from_bytes(json.as_bytes(), config.as_bytes(), template).unwrap();
        tokenizer.template.render("p").unwrap()
    };
    let one = serde_json::json!({ "chat_template": "one {{ messages[0].content }}" });
    let list = serde_json::json!({ "chat_template": [
        { "name": "tool_use", "template": "tools" }, { "name": "default", "template": "two" }] });
    assert_eq!(render(one.clone(), None), "one p");
    assert_eq!(render(list, None), "two");
    assert_eq!(render(one, Some("file")), "file");
    let tokens =
        serde_json::json!({ "bos_token": "<x>", "eos_token": { "content": "<x>" }, "pad_token": null });
    assert_eq!(
        render(tokens, Some("{{ bos_token }}{{ eos_token }}{{ pad_token }}{{ '\\t a\\x1c'.strip() }}")),
        "<x><x>a"
    );

    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("tokenizer.json"), json.as_bytes()).unwrap();
    std::fs::write(folder.path().join("tokenizer_config.json"), r#"{"chat_template":"config"}"#).unwrap();
    let render = || Tokenizer::from_folder(folder.path()).unwrap().template.render("p").unwrap();
    assert_eq!(render(), "config");
    std::fs::write(folder.path().join("chat_template.jinja"), "{{ messages[0].role }}\n").unwrap();
    assert_eq!(render(), "user");
}
