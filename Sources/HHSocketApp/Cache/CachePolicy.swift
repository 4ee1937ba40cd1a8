// SPDX-License-Identifier: Apache-2.0
/// The use of a cache for a request. ``APIRequest/validity`` says how long an answer is valid.
public enum CachePolicy: Hashable, Sendable {
    /// The server is asked, its answer is not kept, and the call is not shared. The default, and the only right one for
    /// requests that change something.
    case ignoringCache
    /// A valid answer is taken from the cache; otherwise the server is asked.
    case returningCached
    /// Acts as ``returningCached``, but also immediately returns an answer that expired no longer ago than this, while
    /// the server is asked for a fresh one in the background.
    case returningStale(upTo: Duration)
    /// The server is asked, whatever the cache contains, and its answer is kept.
    ///
    /// The answer comes from a call that began after the request. If a call is in flight already, the new one begins
    /// when it has ended.
    case reloading
}
