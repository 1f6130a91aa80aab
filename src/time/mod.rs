//! Time as an argument: the clock seam and a deadline queue.

mod clock;
mod deadlines;

pub use clock::{Clock, ManualClock, SystemClock};
pub use deadlines::Deadlines;
