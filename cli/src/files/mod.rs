//! Files that commands read and write.

pub(crate) mod again;
pub(crate) mod input;
pub(crate) mod latents;
pub(crate) mod naming;
pub(crate) mod npy;
pub(crate) mod output;
pub(crate) mod place;
pub(crate) mod record;
