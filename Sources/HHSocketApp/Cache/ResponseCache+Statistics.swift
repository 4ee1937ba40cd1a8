// SPDX-License-Identifier: Apache-2.0
extension ResponseCache {
    /// Counts of a cache, from its beginning; requests that ignore the cache are not counted.
    public struct Statistics: Hashable, Sendable {
        /// Requests that were answered by a valid entry of the cache.
        public package(set) var hits = 0
        /// Requests that were answered by an expired entry of the cache.
        public package(set) var staleHits = 0
        /// Requests for which the server had to be asked, including those that shared a call.
        public package(set) var misses = 0
        /// Requests among the ``misses`` that joined a call in flight.
        public package(set) var coalesced = 0
        /// Calls that were made, including those in the background and repeated ones.
        public package(set) var calls = 0
        /// Calls that the server answered with 304: the kept answer is still valid.
        package var revalidations = 0
        /// Refreshes in the background that failed, because a call failed or was cancelled.
        package var failedRefreshes = 0
        /// Answers that were not kept because the cache was cleared while they were on their way.
        package var clearedAnswers = 0
        /// Answers that were not kept because too many bytes waited to be written to the store.
        public package(set) var droppedStores = 0
        /// Answers that were evicted for others; counted only by a ``MemoryResponseStore``.
        public package(set) var evictions = 0
    }
}
