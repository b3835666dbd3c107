//! Rust's side of the codes in `hip/codes.h`: a module of constants for each `enum`.

use std::fmt::Write as _;

/// The modules, as Rust source; or the line that is not of the few forms that the header keeps to.
pub(crate) fn modules(header: &str) -> Result<String, String> {
    let (mut text, mut doc, mut module) = (String::new(), String::new(), None::<(&str, Vec<&str>)>);
    for line in header.lines() {
        let unknown = || {
            format!("codes.h: \"{line}\" is neither a comment, an enum nor one of its names with a comment")
        };
        match (&mut module, line.trim()) {
            (None, "") => doc.clear(),
            (None, "#pragma once") => {}
            (None, comment) if comment.starts_with("// ") => {
                let _ = writeln!(doc, "///{}", &comment[2..]);
            }
            (None, line) => {
                let name = line
                    .strip_prefix("enum ")
                    .and_then(|rest| rest.strip_suffix(" {"))
                    .ok_or_else(unknown)?;
                let _ = writeln!(text, "{doc}pub mod {name} {{");
                module = Some((name, Vec::new()));
            }
            (Some((_, names)), "};") => {
                let (count, all) = (names.len(), names.join(", "));
                let _ =
                    writeln!(text, "    /// All of them.\n    pub const ALL: [i32; {count}] = [{all}];\n}}");
                module = None;
            }
            (Some((enum_name, names)), line) => {
                let prefix = format!("{}_", enum_name.to_uppercase());
                let parts = line.strip_prefix(&prefix).and_then(|rest| rest.split_once(','));
                let plain = |name: &str| name.bytes().all(|b| b.is_ascii_uppercase() || b == b'_');
                let (name, doc) = parts.filter(|(name, _)| plain(name)).ok_or_else(unknown)?;
                let doc = doc.trim().strip_prefix("// ").ok_or_else(unknown)?;
                let _ = writeln!(text, "    /// {doc}\n    pub const {name}: i32 = {};", names.len());
                names.push(name);
            }
        }
    }
    match module {
        None => Ok(text),
        Some((name, _)) => Err(format!("codes.h: enum {name} does not end")),
    }
}
