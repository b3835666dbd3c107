//! Each way a tokenizer can be wrong.

use serde_json::json;

use super::*;

/// The message of the error that `json` gives.
fn message(json: &Value) -> String {
    load(json).err().expect("an error").to_string()
}

/// The message of the error that this tokenizer_config.json gives.
fn config_message(config: &str) -> String {
    let tokenizer = Tokenizer::from_bytes(tiny().to_string().as_bytes(), config.as_bytes(), None);
    tokenizer.err().expect("an error").to_string()
}

#[test]
fn read() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    let missing = |name: &str| {
        let error = Tokenizer::from_folder(folder.path()).err().unwrap();
        assert!(matches!(&error, Error::Read { path: found, .. } if *found == path(name)), "{error}");
        assert!(error.to_string().starts_with(&path(name).display().to_string()), "{error}");
    };
    missing("tokenizer.json");
    std::fs::write(path("tokenizer.json"), tiny().to_string()).unwrap();
    missing("tokenizer_config.json");
    std::fs::write(path("tokenizer_config.json"), "{}").unwrap();
    assert!(Tokenizer::from_folder(folder.path()).is_ok());
    std::fs::write(path("chat_template.jinja"), [0xff]).unwrap();
    missing("chat_template.jinja");
}

#[test]
fn json_layout() {
    for (json, expected) in [
        ("{}".to_owned(), "missing field `version`"),
        (with(tiny(), "/model/cache", 1.into()).to_string(), "unknown field `cache`"),
        (with(tiny(), "/model/vocab", json!([])).to_string(), "expected an object from token to id"),
        (with(tiny(), "/model/merges", json!(["ab"])).to_string(), "invalid value: string \"ab\""),
        (with(tiny(), "/model/merges", json!(["a b c"])).to_string(), "invalid value: string \"a b c\""),
        (with(tiny(), "/model/merges", json!([["a"]])).to_string(), "invalid length 1"),
        (with(tiny(), "/model/merges", json!([["a", "b", "c"]])).to_string(), "invalid length 3"),
    ] {
        let error = Tokenizer::from_bytes(json.as_bytes(), b"{}", None).err().unwrap();
        assert!(matches!(error, Error::Json { .. }), "{error}");
        let message = error.to_string();
        assert!(
            message.starts_with("the embedded tokenizer.json: ") && message.contains(expected),
            "{message}"
        );
    }
    for (json, found) in [
        ("version https://git-lfs.github.com/spec/v1", "a Git LFS pointer"),
        ("<!DOCTYPE html>", "an HTML page"),
        ("", "an empty file"),
        ("[]", "something else"),
    ] {
        let error = Tokenizer::from_bytes(json.as_bytes(), b"{}", None).err().unwrap();
        assert!(matches!(error, Error::NotJson { .. }), "{error}");
        let message = error.to_string();
        assert!(message.starts_with(&format!("the embedded tokenizer.json: {found}")), "{message}");
    }
    let message = config_message("[]");
    assert_eq!(message, "the embedded tokenizer_config.json: something else, a JSON object expected");
}

#[test]
fn unsupported() {
    let byte_level = json!({ "type": "ByteLevel", "add_prefix_space": false, "trim_offsets": false });
    let split = |key: &str, value: Value| {
        let split =
            json!({ "type": "Split", "pattern": { "Regex": "a" }, "behavior": "Isolated", "invert": false });
        let split = with(split, &format!("/{key}"), value);
        json!({ "type": "Sequence", "pretokenizers": [split, byte_level.clone()] })
    };
    for (pointer, value, expected) in [
        ("/version", json!("2.0"), r#"version is "2.0""#),
        ("/normalizer", json!({ "type": "NFKC" }), r#"normalizer is {"type":"NFKC"}"#),
        ("/normalizer", json!({ "type": "Sequence", "normalizers": [] }), "normalizer is"),
        ("/pre_tokenizer", Value::Null, "pre_tokenizer is null"),
        ("/pre_tokenizer", json!({ "type": "Sequence", "pretokenizers": [] }), "pre_tokenizer is"),
        ("/pre_tokenizer", json!({ "type": "Whitespace" }), r#"pre_tokenizer is {"type":"Whitespace"}"#),
        ("/pre_tokenizer", with(byte_level.clone(), "/more", 1.into()), "pre_tokenizer is"),
        ("/pre_tokenizer", with(byte_level.clone(), "/use_regex", 1.into()), "pre_tokenizer.use_regex is 1"),
        ("/pre_tokenizer", split("type", "Digits".into()), "pre_tokenizer is {\"behavior\""),
        ("/pre_tokenizer", split("behavior", "Removed".into()), r#""behavior":"Removed""#),
        ("/pre_tokenizer", split("invert", true.into()), r#""invert":true"#),
        ("/pre_tokenizer", split("pattern", json!({ "Glob": "a" })), r#""pattern":{"Glob":"a"}"#),
        ("/pre_tokenizer", split("more", 1.into()), r#""more":1"#),
        ("/post_processor", json!({ "type": "TemplateProcessing" }), "post_processor is"),
        ("/decoder", json!({ "type": "Metaspace" }), "decoder is"),
        ("/model/type", json!("Unigram"), r#"model.type is "Unigram""#),
        ("/model/dropout", json!(0.1), "model.dropout is 0.1"),
        ("/model/continuing_subword_prefix", json!("##"), r###"model.continuing_subword_prefix is "##""###),
        ("/model/end_of_word_suffix", json!("</w>"), r#"model.end_of_word_suffix is "</w>""#),
        ("/added_tokens/0/lstrip", json!(true), r#"lstrip of the added token "<x>" is true"#),
        ("/added_tokens/0/rstrip", json!(true), r#"rstrip of the added token "<x>" is true"#),
        ("/added_tokens/0/single_word", json!(true), r#"single_word of the added token "<x>" is true"#),
    ] {
        let error = load(&with(tiny(), pointer, value)).err().expect(expected);
        assert!(matches!(error, Error::Unsupported { .. }), "{error}");
        let message = error.to_string();
        assert!(
            message.starts_with("the embedded tokenizer.json: ") && message.contains(expected),
            "{message}"
        );
        assert!(message.contains("which is not supported (supported: "), "{message}");
    }
    for (config, expected) in [
        (r#"{"add_bos_token":true}"#, "add_bos_token is true"),
        (r#"{"add_eos_token":true}"#, "add_eos_token is true"),
        (r#"{"add_prefix_space":true}"#, "add_prefix_space is true"),
        (r#"{"split_special_tokens":true}"#, "split_special_tokens is true"),
        (r#"{"truncation_side":"left"}"#, r#"truncation_side is "left""#),
        (r#"{"chat_template":7}"#, "chat_template is 7"),
        (r#"{"chat_template":[{"name":"rag","template":"a"}]}"#, "chat_template is ["),
    ] {
        let message = config_message(config);
        assert!(message.starts_with(&format!("the embedded tokenizer_config.json: {expected}")), "{message}");
    }
}

#[test]
fn pattern() {
    let error = load(&with(tiny(), "/pre_tokenizer/pretokenizers/0/pattern", json!({ "Regex": "(" })));
    let error = error.err().unwrap();
    assert!(matches!(&error, Error::Pattern { pattern, .. } if pattern == "("), "{error}");
}

#[test]
fn vocabulary_ids() {
    let expected = "the embedded tokenizer.json: the vocabulary of 258 tokens has no token with id 257; ids must be 0 to 257";
    for id in [256, 258, u32::MAX] {
        assert_eq!(message(&with(tiny(), "/model/vocab/abc", id.into())), expected);
    }
    let empty = message(&with(tiny(), "/model/vocab", json!({})));
    assert_eq!(empty, "the embedded tokenizer.json: the vocabulary has no token for byte 0x00 ('Ā')");
}

#[test]
fn token_twice() {
    let json = tiny().to_string().replace(r#""abc":257"#, r#""abc":257,"abc":258"#);
    let error = Tokenizer::from_bytes(json.as_bytes(), b"{}", None).err().unwrap();
    assert!(matches!(&error, Error::TokenTwice { token, .. } if token == "abc"), "{error}");
    assert!(error.to_string().ends_with(r#": the vocabulary lists the token "abc" twice"#), "{error}");
}

#[test]
fn missing_byte() {
    let mut json = tiny();
    let vocab = json["model"]["vocab"].as_object_mut().unwrap();
    vocab.remove("Ġ");
    vocab.insert("zz".into(), 32.into());
    assert_eq!(
        message(&json),
        "the embedded tokenizer.json: the vocabulary has no token for byte 0x20 ('Ġ')"
    );
}

#[test]
fn merge() {
    for (merges, expected) in [
        (json!(["a b", "a c"]), r#"merge 1 ("a" + "c"): "ac" is not in the vocabulary"#),
        (json!(["abc ", "a b"]), r#"merge 0 ("abc" + ""): "" is not in the vocabulary"#),
        (json!([["", "ab"]]), r#"merge 0 ("" + "ab"): "" is not in the vocabulary"#),
        (json!(["a bc"]), r#"merge 0 ("a" + "bc"): "bc" is not in the vocabulary"#),
    ] {
        let message = message(&with(tiny(), "/model/merges", merges));
        assert_eq!(message, format!("the embedded tokenizer.json: {expected}"));
    }
}

#[test]
fn added_token() {
    let json = with(tiny(), "/added_tokens/0/id", 300.into());
    assert_eq!(
        message(&json),
        r#"the embedded tokenizer.json: added token "<x>" with id 300: id 258 was expected"#
    );
    let json = with(tiny(), "/added_tokens/0/content", "ab".into());
    assert!(message(&json).ends_with(r#"added token "ab" with id 258: id 256 was expected"#));
    let json = with(tiny(), "/added_tokens/0/content", "".into());
    assert!(message(&json).ends_with(r#"added token "" with id 258: a text was expected"#));
    let mut json = tiny();
    let token = json["added_tokens"][0].clone();
    json["added_tokens"].as_array_mut().unwrap().push(token);
    assert!(message(&json).ends_with(r#"added token "<x>" with id 258: it is listed twice"#));
}

#[test]
fn config_token() {
    for (config, key) in [
        (r#"{"eos_token":"<y>"}"#, "eos_token"),
        (r#"{"pad_token":{"content":"<y>"}}"#, "pad_token"),
        (
            r#"{"added_tokens_decoder":{"258":{"content":"<x>"},"259":{"content":"<y>"}}}"#,
            "added_tokens_decoder",
        ),
        (r#"{"additional_special_tokens":["<x>","<y>"]}"#, "additional_special_tokens"),
        (r#"{"extra_special_tokens":{"y":"<y>"}}"#, "extra_special_tokens"),
    ] {
        let expected = format!(
            r#"the embedded tokenizer_config.json: {key} names "<y>", which is no added token of tokenizer.json"#
        );
        assert_eq!(config_message(config), expected);
    }
}

#[test]
fn template() {
    let load = |template| Tokenizer::from_bytes(tiny().to_string().as_bytes(), b"{}", Some(template));
    let error = load("{% if %}").err().unwrap();
    assert!(
        matches!(&error, Error::Template { file, .. } if file == "the embedded chat template"),
        "{error}"
    );

    // What the template itself refuses, and what it asks of the engine in vain.
    for (template, expected) in [
        ("{{ raise_exception('no ' + messages[0].content) }}", "no p"),
        ("{{ messages[0].content.swapcase() }}", "swapcase"),
        ("{{ strftime_now('%Y') }}", "strftime_now"),
    ] {
        let error = load(template).unwrap().encode_prompt("p", 8).unwrap_err();
        assert!(matches!(error, Error::Template { .. }), "{error}");
        let message = error.to_string();
        assert!(
            message.starts_with("the embedded chat template: ") && message.contains(expected),
            "{message}"
        );
    }
}

#[test]
fn split_gives_up() {
    let text = " ".repeat(1_100_000) + "x";
    let error = small().encode(&text).unwrap_err();
    assert!(matches!(error, Error::Split { at: 0, len: 1_100_001, .. }), "{error}");
    assert!(error.to_string().contains("gave up at byte 0 of 1100001: "), "{error}");
}
