//! Names that the program chooses: `-o` with a folder or with fields in the name.

use std::path::{Path, PathBuf};

/// The name of a picture in a folder.
const IN_FOLDER: &str = "{prompt}-{seed}.png";
/// Most characters of a prompt in a name.
const PROMPT_CHARS: usize = 40;

/// The path with a name to fill in: a folder's gets one, a file's has fields; `None` for any other path.
///
/// # Errors
/// What is wrong with the fields.
pub(crate) fn template(path: &Path) -> Result<Option<PathBuf>, String> {
    if path.is_dir() {
        return Ok(Some(path.join(IN_FOLDER)));
    }
    let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
    let fields: Vec<&str> =
        name.split('{').skip(1).filter_map(|rest| Some(rest.split_once('}')?.0)).collect();
    match fields.iter().find(|field| !["prompt", "seed", "index"].contains(field)) {
        Some(field) => {
            Err(format!("{{{field}}} is no field of a name; {{prompt}}, {{seed}} and {{index}} are"))
        }
        None if fields.is_empty() => Ok(None),
        None => Ok(Some(path.into())),
    }
}

/// A template with its prompt and seed filled in; noise from a file has no seed.
pub(crate) fn filled(template: &str, prompt: &str, seed: Option<u64>) -> String {
    let seed = seed.map_or("noise".into(), |seed| seed.to_string());
    template.replace("{seed}", &seed).replace("{prompt}", &cleaned(prompt))
}

/// The names that a filled template can give: with an index its numbers, else the name itself, then with `-2`, `-3` and so on.
pub(crate) fn names(filled: &str) -> impl Iterator<Item = String> {
    let (stem, extension) = match filled.rsplit_once('.') {
        Some((stem, extension)) => (stem.to_string(), format!(".{extension}")),
        None => (filled.to_string(), String::new()),
    };
    let filled = filled.to_string();
    let indexed = has_index(&filled);
    (1..).map(move |n: u64| match (indexed, n) {
        (true, n) => filled.replace("{index}", &format!("{n:04}")),
        (false, 1) => filled.clone(),
        (false, n) => format!("{stem}-{n}{extension}"),
    })
}

/// Whether every name of a filled template is another.
pub(crate) fn has_index(filled: &str) -> bool {
    filled.contains("{index}")
}

/// A prompt as a part of a name: its first letters and digits, in any language, with dashes between the words.
fn cleaned(prompt: &str) -> String {
    let mut name = String::new();
    for c in prompt.chars() {
        if name.chars().count() == PROMPT_CHARS {
            break;
        }
        match c.is_alphanumeric() {
            true => name.push(c),
            false if !name.is_empty() && !name.ends_with('-') => name.push('-'),
            false => {}
        }
    }
    match name.trim_end_matches('-') {
        "" => "picture".into(),
        name => name.into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_known_and_found_in_the_name_alone() {
        let folder = tempfile::tempdir().unwrap();
        assert_eq!(template(folder.path()).unwrap(), Some(folder.path().join(IN_FOLDER)));
        for plain in ["a.png", "{x}/a.png", "a{b.png", "-"] {
            assert_eq!(template(Path::new(plain)).unwrap(), None, "{plain}");
        }
        let path = Path::new("pictures/{prompt}-{index}.png");
        assert_eq!(template(path).unwrap().as_deref(), Some(path));
        for wrong in ["{}.png", "{sed}.png", "{prompt}-{Seed}.png"] {
            assert!(template(Path::new(wrong)).unwrap_err().contains("is no field"), "{wrong}");
        }
    }

    #[test]
    fn prompts_are_cut_and_cleaned() {
        assert_eq!(
            filled("{prompt}-{seed}.png", "A red  apple, /etc/../x!", Some(7)),
            "A-red-apple-etc-x-7.png"
        );
        assert_eq!(filled("{prompt}.png", "{index}{seed}\n\u{1b}[2J", Some(7)), "index-seed-2J.png");
        assert_eq!(filled("{prompt}.png", " ../ ", Some(7)), "picture.png");
        assert_eq!(filled("{prompt}", &"苹果 ".repeat(40), Some(7)).chars().count(), 40);
        assert_eq!(
            filled("{prompt}", &"苹果苹 ".repeat(40), Some(7)).chars().count(),
            39,
            "no dash at the end"
        );
    }

    #[test]
    fn names_go_on() {
        let first = |filled: &str| names(filled).take(3).collect::<Vec<_>>();
        assert_eq!(first("a-7.png"), ["a-7.png", "a-7-2.png", "a-7-3.png"]);
        assert_eq!(first("a"), ["a", "a-2", "a-3"]);
        assert_eq!(first("a-{index}.png"), ["a-0001.png", "a-0002.png", "a-0003.png"]);
    }
}
