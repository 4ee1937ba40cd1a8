/// Answers that need not be asked for again, and calls in flight that need not be made twice; shared by the managers
/// that are made with it.
///
/// ```swift
/// let cache = ResponseCache()
/// let profile = APIManager(client: client, cache: cache)
/// let friends = APIManager(client: client, cache: cache)
/// ```
/// Requests are the same if their ``ResponseKey``s are: type, canonical body, and the headers named as significant.
/// Nothing else is looked at, so a cache is for one service and one user: clear it with ``removeAll()`` when the user
/// logs out.
public final class ResponseCache: Sendable {
    /// The default limit of callers that wait; more fail with `tooManyInFlight`.
    public static let defaultMaximumCallers = 100_000

    let calls: SharedCalls

    /// A cache in memory.
    ///
    /// - Parameters:
    ///   - maximumCost: How much may be kept, in bytes; 20 MB by default. See
    ///     ``MemoryResponseStore/init(maximumCost:)``.
    ///   - maximumCallers: How many callers may wait at a time; 100,000 by default. More fail with `tooManyInFlight`.
    ///   - clock: The system's by default; a test has its own.
    public convenience init(
        maximumCost: Int = MemoryResponseStore.defaultMaximumCost,
        maximumCallers: Int = ResponseCache.defaultMaximumCallers,
        clock: APIClock = .system
    ) {
        self.init(store: MemoryResponseStore(maximumCost: maximumCost), maximumCallers: maximumCallers, clock: clock)
    }

    /// A cache that keeps its answers elsewhere.
    ///
    /// At most 20 MB of answers wait for a store that is slow; those that come then are not kept.
    ///
    /// - Parameters:
    ///   - store: Where, such as on a disk.
    ///   - maximumCallers: How many callers may wait at a time; 100,000 by default. More fail with `tooManyInFlight`.
    ///   - clock: The system's by default; a test has its own.
    public init(
        store: any ResponseStore,
        maximumCallers: Int = ResponseCache.defaultMaximumCallers,
        clock: APIClock = .system
    ) {
        self.calls = SharedCalls(store: store, clock: clock, maximumCallers: max(1, maximumCallers))
    }

    /// Clears the cache, as when the user logs out.
    ///
    /// From now on nobody gets an answer that was kept before. Calls in flight go on for those who wait for them, but
    /// their answers are not kept, and nobody joins them any more.
    public func removeAll() { self.calls.remove(.all) }

    /// Removes the answers to requests of one type, as after a change of what they describe.
    public func removeAll(ofType type: UInt32) { self.calls.remove(.ofType(type)) }

    /// Removes the answers that one manager asked for, or another of the same name. Those that it got from the
    /// cache because another manager had asked for them are the other's.
    public func removeAll(of manager: APIManager) { self.calls.remove(.ofOwner(manager.name)) }

    /// Returns when the store has done all that the cache has decided so far: kept what has come, and dropped what was
    /// cleared.
    public func flush() async { await self.calls.flush() }

    /// The counts so far.
    public var statistics: Statistics { self.calls.statistics }
}
