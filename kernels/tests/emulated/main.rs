//! Every kernel on emulated gfx11 and gfx12 hardware, bit for bit the scalar oracle's results, with waves in several orders
//! and the emulator's sanitizer on. Sizes straddle the tiles.

mod attention;
mod encoder;
mod gpu;
mod linear;
mod mutations;
mod norm;
mod vae;
