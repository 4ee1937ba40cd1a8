/// The use of a cache for a request. ``APIRequest/validity`` says how long an answer is valid.
public enum CachePolicy: Hashable, Sendable {
    /// The server is asked, its answer is not kept, and the call is not shared with anybody. The default, and the only
    /// right one for requests that change something.
    case ignoringCache
    /// An answer that is valid is taken from the cache; otherwise the server is asked.
    case returningCached
    /// Acts as ``returningCached``, but returns at once an answer that expired no longer ago than this, too, while the
    /// server is asked for a fresh one in the background.
    case returningStale(upTo: Duration)
    /// The server is asked, whatever the cache has, and its answer is kept.
    ///
    /// The answer is to a call that began after this was asked for. So where one is in flight already, this one begins
    /// when that has ended.
    case reloading
}
