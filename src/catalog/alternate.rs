//! Alternate exchanges: they take the messages for which an exchange has no destination (AE-01 to
//! AE-05, EXC-03, EXC-04).

use crate::{machine::Catalog, objects::ExchangeRecord, refusal};
use quorate_types::{Exception, ResourceName, ShortString};
use std::collections::BTreeSet;

/// The argument that names the alternate exchange.
pub(crate) const ALTERNATE: &str = "alternate-exchange";

/// EXC-03: the argument must be a long string.
pub(crate) fn check_alternate(declared: &ExchangeRecord) -> Result<(), Exception> {
    match declared.arguments.get(ALTERNATE) {
        Some(value) if value.as_long_string().is_none() => {
            Err(refusal::wrong_exchange_argument(&declared.name, ALTERNATE, value))
        }
        Some(_) | None => Ok(()),
    }
}

impl Catalog {
    /// Name of an exchange's alternate, which need not exist (AE-03). The default exchange has no
    /// alternate (AE-05).
    #[must_use]
    pub fn alternate_of(&self, exchange: &ResourceName) -> Option<ShortString> {
        self.alternate_in_force(self.exchange(exchange)?)
    }

    /// The alternate that is in force: the argument wins over a policy (AE-05).
    pub(crate) fn alternate_in_force(&self, exchange: &ExchangeRecord) -> Option<ShortString> {
        let declared = Self::declared_alternate(&exchange.arguments);
        declared.or_else(|| self.policy_alternate(&exchange.name))
    }

    /// The alternate that is named but does not exist (AE-03), if the exchange and its chain of
    /// alternates end there without a destination. The operator is warned of it.
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
