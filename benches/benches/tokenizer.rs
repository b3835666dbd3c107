//! Loading the tokenizer and encoding a long prompt.
//!
//! With `MOSS_QWEN_TOKENIZER` set to the folder that golden/tokenizer/make_tokenizer_json.py makes, the
//! vocabulary is the real one of 248,044 tokens; else the small one of the golden files.

use std::path::{Path, PathBuf};

use criterion::Criterion;
use moss_reference::model::tokenizer::Tokenizer;

/// Tokens of the prompt.
const TOKENS: usize = 4000;

fn tokenizer(c: &mut Criterion) {
    let golden = Path::new(env!("CARGO_MANIFEST_DIR")).join("../golden/tokenizer");
    let (name, folder) = match std::env::var_os("MOSS_QWEN_TOKENIZER") {
        Some(folder) => ("qwen3_5", PathBuf::from(folder)),
        None => ("small", golden.join("small")),
    };
    let tokenizer = Tokenizer::from_folder(&folder).unwrap();

    // The golden lines again and again, every language among them, until there are enough tokens.
    let lines = std::fs::read_to_string(golden.join("lines.jsonl")).unwrap();
    let lines: Vec<String> = lines.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let mut prompt = String::new();
    let mut tokens = 0;
    // A stride that shares no factor with the number of lines mixes the languages.
    for i in (0..).map(|i| i * 997 % lines.len()) {
        prompt.push_str(&lines[i]);
        prompt.push(' ');
        tokens += tokenizer.encode(&lines[i]).unwrap().len() + 1;
        if tokens >= TOKENS {
            break;
        }
    }
    let tokens = tokenizer.encode(&prompt).unwrap().len();

    let mut group = c.benchmark_group(format!("tokenizer/{name}"));
    group.sample_size(20);
    group.bench_function("load", |b| b.iter(|| Tokenizer::from_folder(&folder).unwrap()));
    group
        .bench_function(format!("encode {tokens} tokens"), |b| b.iter(|| tokenizer.encode(&prompt).unwrap()));
    let blanks = " ".repeat(100_000);
    group.bench_function("encode 100000 blanks", |b| b.iter(|| tokenizer.encode(&blanks).unwrap()));
    let letters = "ab".repeat(50_000);
    group.bench_function("encode a word of 100000 letters", |b| {
        b.iter(|| tokenizer.encode(&letters).unwrap())
    });
    group.finish();
}

fn main() {
    let mut criterion = Criterion::default().configure_from_args();
    tokenizer(&mut criterion);
    criterion.final_summary();
}
