//! What proves that backends agree with the reference and with the official pipeline.

pub mod battery;
pub mod bounded;
pub mod compare;
pub mod golden;
pub mod row;
