//! Codes that Rust and HIP share come from one list.

#[path = "../build/codes.rs"]
mod codes;

#[test]
fn an_enum_becomes_a_module() {
    let header = "// Of the list.\n#pragma once\n\n// Sizes of a cup.\nenum cup_size {\n    CUP_SIZE_S, // `250`.\n    CUP_SIZE_L,  // `400`.\n};\n";
    let expected = "/// Sizes of a cup.\npub mod cup_size {\n    /// `250`.\n    pub const S: i32 = 0;\n    /// `400`.\n    \
                    pub const L: i32 = 1;\n    /// All of them.\n    pub const ALL: [i32; 2] = [S, L];\n}\n";
    assert_eq!(codes::modules(header).as_deref(), Ok(expected));
}

#[test]
fn what_is_not_understood_is_refused() {
    for line in [
        "enum a",
        "#define A 1",
        "enum a {\n    B_C, // no prefix",
        "enum a {\n    A_B = 3, // a value",
        "enum a {\n    A_B,",
    ] {
        let error = codes::modules(line).expect_err(line);
        assert!(
            error.starts_with("codes.h: ") && error.contains(line.lines().last().expect("a line")),
            "{error}"
        );
    }
    assert_eq!(codes::modules("enum a {"), Err("codes.h: enum a does not end".to_owned()));
}
