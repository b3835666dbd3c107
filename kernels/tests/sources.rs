//! Rules of the kernels' sources that no compiler checks.

use std::fs;
use std::path::Path;

use moss_kernels::args::{combine_stage, epilogue, glu, norm_kind};

/// Every source: its name and its lines without comments.
fn sources() -> Vec<(String, Vec<String>)> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("hip");
    let entries = fs::read_dir(folder).expect("the sources").map(|entry| entry.expect("readable").path());
    entries
        .map(|path| {
            let text = fs::read_to_string(&path).expect("text");
            let code = text.lines().map(|line| line.split("//").next().unwrap_or_default().to_owned());
            (path.file_name().expect("a name").to_string_lossy().into_owned(), code.collect())
        })
        .collect()
}

/// A kernel that compares a code with a number would not follow the list.
#[test]
fn kernels_name_the_codes() {
    assert_eq!(
        (epilogue::ALL.len(), glu::ALL.len(), norm_kind::ALL.len(), combine_stage::ALL.len()),
        (4, 2, 2, 2)
    );
    let mut named = 0;
    for (file, lines) in sources() {
        for words in lines.iter().map(|line| line.split([' ', '(', ')', ';']).collect::<Vec<_>>()) {
            for w in words.windows(3) {
                let code = ["epilogue", "glu", "kind", "stage"].contains(&w[0])
                    && ["==", "!=", ">=", "<", ">"].contains(&w[1]);
                assert!(!code || w[2].parse::<i32>().is_err(), "{file}: {}", w.join(" "));
                named += usize::from(code);
            }
        }
    }
    assert!(named >= 6, "{named} comparisons of codes found");
}

/// What one vendor's compiler knows, outside the machine layer, would not compile for the other.
#[test]
fn only_the_machine_layer_holds_what_is_a_vendors() {
    let vendors = ["amdgcn", "amdgpu", "nvvm", "__syncthreads", "asm", "__attribute__"];
    let mut in_the_layer = [false; 6];
    for (file, lines) in sources() {
        for line in lines {
            for (found, word) in in_the_layer.iter_mut().zip(vendors) {
                if line.contains(word) {
                    assert_eq!(file, "machine.h", "{line}");
                    *found = true;
                }
            }
        }
    }
    assert_eq!(in_the_layer, [true; 6], "{vendors:?}");
}
