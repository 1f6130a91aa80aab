//! The rules that keep what was acknowledged (R1–R15 of the design, each at its place in the code). They
//! always hold; a test can switch one off in its thread, to show that it would notice.

/// A rule that can be switched off.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Rule {
    /// Every change of a partition compares its revision.
    R1,
    /// A broker's change compares its own registration.
    R2,
    /// Who joins the ISR is still registered as when it fetched.
    R3,
    /// The maximal ISR counts until an outcome is known.
    R4,
    /// A registration begins a new leader epoch of what the broker leads.
    R5,
    /// Positions count once the logs agree up to there; logs are cut by epoch.
    R6,
    /// Nobody joins the ISR before the start of the leader's epoch.
    R7,
    /// Nothing is committed below `min.insync.replicas`.
    R8,
    /// The end of a partition is told once it is not before what earlier leaders showed.
    R9,
    /// Who may have forgotten something leaves ISR and ELR.
    R10,
    /// A controller's change compares its seat.
    R11,
    /// A lease is believed for less than its time.
    R12,
    /// What a watch tells is a hint, and older news is none.
    R13,
    /// A new controller that misses several brokers waits for them.
    R14,
    /// What a coordinator decided in one leader epoch is not written in a later.
    R15,
}

#[cfg(not(test))]
pub(crate) const fn holds(_rule: Rule) -> bool {
    true
}

#[cfg(test)]
thread_local! {
    static OFF: std::cell::RefCell<Vec<Rule>> = const { std::cell::RefCell::new(Vec::new()) };
}

#[cfg(test)]
pub(crate) fn holds(rule: Rule) -> bool {
    OFF.with_borrow(|off| !off.contains(&rule))
}

/// Switches these off in this thread, and all others on.
#[cfg(test)]
pub(crate) fn switch_off(rules: &[Rule]) {
    OFF.with_borrow_mut(|off| *off = rules.to_vec());
}
