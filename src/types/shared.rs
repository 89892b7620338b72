//! A short proof for the compiler that a large type may be used by several threads.

/// Declares that a struct with these fields, which must be all of them, is `Send` and `Sync`.
///
/// The compiler finds that out by itself, but anew for each `async fn` that holds the value, and walks through
/// all types inside each time. For the parts of which a node consists that took more than half of the time to
/// check a crate. With the declaration it looks through them once, here; a field that may not be shared between
/// threads, or that is not named, is an error.
///
/// ```
/// struct Counted {
///     names: Vec<String>,
///     count: std::sync::atomic::AtomicU64,
/// }
/// quorate_types::declare_shared!(Counted: names, count);
/// ```
///
/// ```compile_fail
/// struct Counted {
///     count: std::cell::Cell<u64>,
/// }
/// quorate_types::declare_shared!(Counted: count);
/// ```
#[macro_export]
macro_rules! declare_shared {
    ($shared:ident: $($field:ident),+) => {
        const _: fn(&$shared) = |$shared { $($field),+ }| {
            fn may_be_shared<T: Send + Sync>(_: &T) {}
            $(may_be_shared($field);)+
        };
        #[expect(unsafe_code, reason = "proved above")]
        // SAFETY: the function above names all fields, and compiles only if each is `Send` and `Sync`.
        unsafe impl Send for $shared {}
        #[expect(unsafe_code, reason = "proved above")]
        // SAFETY: as above.
        unsafe impl Sync for $shared {}
    };
}
