//! Alternate exchanges: where a message goes that an exchange has no destination for (AE-01 to
//! AE-05, EXC-03, EXC-04).

use crate::{machine::Catalog, objects::ExchangeRecord, refusal};
use quorate_types::{Exception, ResourceName, ShortString};
use std::collections::BTreeSet;

/// The argument that names it.
pub(crate) const ALTERNATE: &str = "alternate-exchange";

/// EXC-03: it is named by a long string.
pub(crate) fn check_alternate(declared: &ExchangeRecord) -> Result<(), Exception> {
    match declared.arguments.get(ALTERNATE) {
        Some(value) if value.as_long_string().is_none() => {
            Err(refusal::wrong_exchange_argument(&declared.name, ALTERNATE, value))
        }
        Some(_) | None => Ok(()),
    }
}

impl Catalog {
    /// Name of an exchange's alternate, which need not be there (AE-03). The default exchange has
    /// none (AE-05).
    #[must_use]
    pub fn alternate_of(&self, exchange: &ResourceName) -> Option<ShortString> {
        self.alternate_in_force(self.exchange(exchange)?)
    }

    /// The one that counts of all places that may name one: the argument, else a policy (AE-05).
    pub(crate) fn alternate_in_force(&self, exchange: &ExchangeRecord) -> Option<ShortString> {
        let declared = Self::declared_alternate(&exchange.arguments);
        declared.or_else(|| self.policy_alternate(&exchange.name))
    }

    /// The alternate that is named and not there (AE-03), of an exchange that leads nowhere or of
    /// its alternates in turn: what the operator is warned of.
    #[must_use]
    pub fn missing_alternate(&self, exchange: &ResourceName) -> Option<ResourceName> {
        let mut seen = BTreeSet::new();
        let mut at = exchange.clone();
        loop {
            let name = self.alternate_of(&at)?;
            seen.insert(at.name);
            at = ResourceName { vhost: at.vhost, name };
            if self.exchange(&at).is_none() {
                return Some(at);
            }
            if seen.contains(&at.name) {
                return None;
            }
        }
    }
}
