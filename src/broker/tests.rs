//! The parts of several brokers together.

mod simulation;
