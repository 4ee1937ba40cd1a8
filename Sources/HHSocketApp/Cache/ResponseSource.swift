// SPDX-License-Identifier: Apache-2.0
/// The origin of a value.
public enum ResponseSource: Hashable, Sendable {
    /// The server has just sent it.
    case network
    /// From the cache and valid; the time since it was received or revalidated.
    case cache(age: Duration)
    /// From the cache; the server has just confirmed that it is still valid.
    case revalidated
    /// From the cache and expired; the time since it was received. A fresh one is being fetched.
    case stale(age: Duration)

    /// Whether the value was in the cache.
    package var isHit: Bool { self != .network }
}
