//! Two pictures of one case, and pictures as text for an HTML file.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;

/// How much a difference is made larger so that it can be seen.
pub(super) const GAIN: u8 = 32;

/// The official picture and ours.
#[derive(Clone, Debug)]
pub struct Pair {
    case: String,
    width: usize,
    height: usize,
    official: Vec<u8>,
    ours: Vec<u8>,
}

impl Pair {
    /// Two 8-bit `[height, width, 3]` pictures; `None` when one has another size.
    pub fn new(case: &str, width: usize, height: usize, official: Vec<u8>, ours: Vec<u8>) -> Option<Self> {
        let len = width * height * 3;
        let fits = len > 0 && official.len() == len && ours.len() == len;
        fits.then(|| Self { case: case.into(), width, height, official, ours })
    }

    /// The case's name.
    pub fn case(&self) -> &str {
        &self.case
    }

    /// Width in pixels.
    pub fn width(&self) -> usize {
        self.width
    }

    /// Height in pixels.
    pub fn height(&self) -> usize {
        self.height
    }

    /// The largest difference of two levels.
    pub fn levels_apart(&self) -> u8 {
        self.apart().max().unwrap_or(0)
    }

    fn apart(&self) -> impl Iterator<Item = u8> {
        self.official.iter().zip(&self.ours).map(|(&a, &b)| a.abs_diff(b))
    }

    /// Official, ours, and their difference times [`GAIN`], as `data:` addresses of PNG files.
    pub(super) fn addresses(&self) -> std::io::Result<[String; 3]> {
        let difference: Vec<u8> = self.apart().map(|level| level.saturating_mul(GAIN)).collect();
        Ok([self.address(&self.official)?, self.address(&self.ours)?, self.address(&difference)?])
    }

    fn address(&self, pixels: &[u8]) -> std::io::Result<String> {
        let mut bytes = Vec::new();
        let mut encoder = png::Encoder::new(&mut bytes, self.width as u32, self.height as u32);
        encoder.set_color(png::ColorType::Rgb);
        encoder.set_depth(png::BitDepth::Eight);
        let mut writer = encoder.write_header()?;
        writer.write_image_data(pixels)?;
        writer.finish()?;
        Ok(format!("data:image/png;base64,{}", BASE64.encode(&bytes)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pictures_of_other_sizes_are_no_pair() {
        assert!(Pair::new("a", 1, 1, vec![0; 3], vec![0; 3]).is_some());
        assert!(Pair::new("a", 1, 1, vec![0; 3], vec![0; 6]).is_none());
        assert!(Pair::new("a", 2, 1, vec![0; 3], vec![0; 6]).is_none());
    }

    #[test]
    fn the_difference_is_the_largest_level() {
        let pair = Pair::new("a", 1, 1, vec![0, 255, 7], vec![3, 250, 7]).unwrap();
        assert_eq!(pair.levels_apart(), 5);
    }
}
