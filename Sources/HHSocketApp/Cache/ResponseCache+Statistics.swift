extension ResponseCache {
    /// Counts of a cache, from its beginning; requests that ignore the cache are not among them.
    public struct Statistics: Hashable, Sendable {
        /// Requests that got a valid answer from the cache.
        public var hits = 0
        /// Requests that got one that was valid no more.
        public var staleHits = 0
        /// Requests for which the server had to be asked, those included that shared a call.
        public var misses = 0
        /// Those among them that joined a call which was there already.
        public var coalesced = 0
        /// Calls that were made, those in the background and those made again included.
        public var calls = 0
        /// Calls that the server answered with 304: what was kept is still right.
        public var revalidations = 0
        /// Fresh answers that were not got in the background, because a call failed or was cancelled.
        public var failedRefreshes = 0
        /// Answers that were not kept because the cache was cleared while they were on their way.
        public var clearedAnswers = 0
        /// Answers that were not kept because too much waited to be written to the store.
        public var droppedStores = 0
        /// Answers that had to go for others; of a ``MemoryResponseStore`` alone.
        public var evictions = 0
    }
}
