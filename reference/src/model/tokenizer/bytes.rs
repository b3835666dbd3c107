//! The byte-level alphabet of GPT-2: `tokenizer.json` spells every byte as one printable character.

/// The character that stands for each byte: itself where Latin-1 prints it, the others from U+0100 upwards.
fn characters() -> [char; 256] {
    let mut spare = 0x100u32;
    std::array::from_fn(|byte| match byte {
        0x21..=0x7e | 0xa1..=0xac | 0xae..=0xff => char::from(byte as u8),
        _ => {
            spare += 1;
            char::from_u32(spare - 1).expect("68 characters from U+0100 upwards")
        }
    })
}

/// The alphabet, both ways.
pub(super) struct Alphabet {
    /// `characters[b]` stands for the byte `b`.
    pub(super) characters: [char; 256],
    /// The byte that a character below U+0144 stands for.
    bytes: [Option<u8>; 0x144],
}

impl Alphabet {
    pub(super) fn new() -> Self {
        let characters = characters();
        let mut bytes = [None; 0x144];
        for (byte, &c) in characters.iter().enumerate() {
            bytes[c as usize] = Some(byte as u8);
        }
        Self { characters, bytes }
    }

    /// The bytes that `token` spells, or `None` when it holds a character outside the alphabet.
    pub(super) fn bytes_of(&self, token: &str) -> Option<Vec<u8>> {
        token.chars().map(|c| self.bytes.get(c as usize).copied().flatten()).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Facts of the published table: space is `Ġ`, newline `Ċ`, the soft hyphen the last of the spare ones.
    #[test]
    fn known_characters() {
        let alphabet = Alphabet::new();
        for (byte, c) in [(b' ', 'Ġ'), (b'\n', 'Ċ'), (b'a', 'a'), (0, 'Ā'), (0xe4, 'ä'), (0xad, 'Ń')] {
            assert_eq!(alphabet.characters[byte as usize], c);
        }
    }

    #[test]
    fn every_byte_comes_back() {
        let alphabet = Alphabet::new();
        let text: String = alphabet.characters.iter().collect();
        assert_eq!(alphabet.bytes_of(&text), Some((0..=255).collect()));
        for outside in [" ", "\u{ad}", "\u{144}", "中", "a\u{10ffff}"] {
            assert_eq!(alphabet.bytes_of(outside), None, "{outside:?}");
        }
    }
}
