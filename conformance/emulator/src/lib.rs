//! An emulator of the RDNA3 and RDNA4 machine code that moss ships.
