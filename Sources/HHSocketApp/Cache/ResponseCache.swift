// SPDX-License-Identifier: Apache-2.0
/// A cache of answers, in which equal requests also share calls in flight. The managers that are made with it share
/// both.
///
/// ```swift
/// let cache = ResponseCache()
/// let profile = APIManager(client: client, cache: cache)
/// let friends = APIManager(client: client, cache: cache)
/// ```
/// Requests are equal if their ``ResponseKey``s are: type, canonical body, and the headers named as significant.
/// Nothing else is compared, so a cache is for one service and one user: clear it with ``removeAll()`` when the user
/// logs out.
public final class ResponseCache: Sendable {
    /// The number of callers that may wait at a time by default.
    @usableFromInline package static let defaultMaximumCallers = 100_000

    let calls: SharedCalls

    /// Creates a cache.
    ///
    /// At most 20 MB of answers wait for a slow store; further ones are not kept.
    ///
    /// - Parameters:
    ///   - store: The store of the answers: by default one in memory, of 20 MB; another one may be on a disk.
    ///   - maximumCallers: The number of callers that may wait at a time; 100,000 by default. Further ones fail with
    ///     `tooManyInFlight`.
    ///   - clock: The clocks; the system's by default. A test has its own.
    public init(
        store: any ResponseStore = MemoryResponseStore(),
        maximumCallers: Int = ResponseCache.defaultMaximumCallers,
        clock: APIClock = .system
    ) {
        self.calls = SharedCalls(store: store, clock: clock, maximumCallers: max(1, maximumCallers))
    }

    /// Creates a cache in memory.
    package convenience init(
        maximumCost: Int,
        maximumCallers: Int = ResponseCache.defaultMaximumCallers,
        clock: APIClock = .system
    ) {
        self.init(store: MemoryResponseStore(maximumCost: maximumCost), maximumCallers: maximumCallers, clock: clock)
    }

    /// Clears the cache, for example when the user logs out.
    ///
    /// From now on no request gets an answer that was kept before. Calls in flight continue for the callers that wait
    /// for them, but their answers are not kept, and no further request joins them.
    public func removeAll() { self.calls.remove(.all) }

    /// Removes the answers to requests of one type, as after a change of the data that they describe.
    public func removeAll(ofType type: UInt32) { self.calls.remove(.ofType(type)) }

    /// Removes the answers that this manager, or another of the same name, asked for. Answers that it got from the
    /// cache because another manager had asked for them belong to the other.
    public func removeAll(of manager: APIManager) { self.calls.remove(.ofOwner(manager.name)) }

    /// Waits until the store has carried out all decisions of the cache so far: has kept new answers, and dropped
    /// removed ones.
    public func flush() async { await self.calls.flush() }

    /// The counts so far.
    public var statistics: Statistics { self.calls.statistics }
}
