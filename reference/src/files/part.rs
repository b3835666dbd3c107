//! The parts of a model folder and the tensors that each must have.

/// A part of a model, with its folder and the names it does not use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    /// `text_encoder/`.
    TextEncoder,
    /// `transformer/`.
    Transformer,
    /// `vae/`.
    Vae,
}

impl Part {
    /// The folder's name.
    pub fn folder(self) -> &'static str {
        match self {
            Part::TextEncoder => "text_encoder",
            Part::Transformer => "transformer",
            Part::Vae => "vae",
        }
    }

    /// What it is called in messages.
    pub fn title(self) -> &'static str {
        match self {
            Part::TextEncoder => "the Qwen3.5 text encoder",
            Part::Transformer => "the MOSS-Image transformer",
            Part::Vae => "the FLUX.2 VAE decoder",
        }
    }

    /// Prefixes that a tensor's name may have in the file and not in the model.
    pub(super) fn prefixes(self) -> &'static [&'static str] {
        match self {
            Part::TextEncoder => &["model.language_model.", "language_model.", "model."],
            Part::Transformer | Part::Vae => &[],
        }
    }

    /// Whether the pipeline has no use for a tensor of this name (as in the file).
    pub(super) fn ignores(self, name: &str) -> bool {
        let starts = |list: &[&str]| list.iter().any(|prefix| name.starts_with(prefix));
        match self {
            Part::TextEncoder => {
                starts(&["visual.", "model.visual.", "lm_head.", "model.lm_head.", "mtp.", "model.mtp."])
                    || name.ends_with("rotary_emb.inv_freq")
            }
            Part::Transformer => name == "rope.bands",
            Part::Vae => starts(&["encoder.", "quant_conv."]) || name == "bn.num_batches_tracked",
        }
    }
}

/// A tensor that a part must have.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TensorSpec {
    /// Name without prefix.
    pub name: String,
    /// Shape.
    pub shape: Vec<usize>,
}
