//! The rules that keep what was acknowledged (R1–R15 of the design, each at its place in the code). They
//! always hold; a test can switch one off in its thread, to show that it would notice.

/// A rule that can be switched off.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Rule {
    /// Every change of a partition compares its revision.
    #[cfg(test)]
    R1,
    /// A leader's change compares its own registration.
    #[cfg(test)]
    R2,
    /// Who joins the ISR is still registered as when it fetched.
    #[cfg(test)]
    R3,
    /// The maximal ISR counts until an outcome is known.
    R4,
    /// A registration begins a new leader epoch of what the broker leads.
    R5,
    /// Positions count in their own epoch only; logs are cut by epoch.
    #[cfg(test)]
    R6,
    /// Nobody joins the ISR before the start of the leader's epoch.
    R7,
    /// Nothing is committed below `min.insync.replicas`.
    R8,
    /// Who may have forgotten something leaves ISR and ELR.
    #[cfg(test)]
    R10,
    /// A controller's change compares its seat.
    #[cfg(test)]
    R11,
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
