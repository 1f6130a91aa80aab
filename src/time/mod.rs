//! Time as an argument: the clock seam, a deadline queue, the end of a lease.

mod clock;
mod deadlines;
mod lease;

pub use clock::{Clock, ManualClock, SystemClock};
pub use deadlines::Deadlines;
pub use lease::LeaseDeadline;
