// SPDX-License-Identifier: Apache-2.0
import HHSocket
import NIOCore

/// The decisions of a cache: which callers are answered from it, which share a call, and which answers are kept.
///
/// A caller that may share is searched for first, together with all others that ask for the same in the meantime. A
/// miss joins the call in flight for its key, or begins one, so there is one search and one call for a key at a time.
/// Clearing separates generations: callers from before and after share neither calls nor results, and the answers of
/// the former are not kept.
///
/// It does no I/O and has no clock. Each event adds the steps to take to an ``Actions``.
struct SharedCallMachine {
    /// A caller, unique in the process: the manager's number, and the identifier that the manager gave.
    struct Caller: Hashable, Sendable {
        var manager: UInt64
        var number: Int
        /// Whether this is not a caller, but the revalidation after a stale answer.
        var isRefresh = false

        var refresh: Caller { Caller(manager: self.manager, number: self.number, isRefresh: true) }
    }

    /// A caller's request.
    struct Asking: Sendable {
        var request: SocketRequest
        /// The key in the cache; nil if nothing is searched for, kept or shared.
        var key: ResponseKey?
        /// The transport that makes the call. Only callers with the same transport share one.
        var transport: any APITransport
        var policy = CachePolicy.returningCached
        var validity = Duration.seconds(60)
        /// The manager's name.
        var owner: String
        var timeout: Duration
    }

    struct Answer: Sendable {
        var response: SocketResponse
        var source: ResponseSource
    }

    enum StoreOperation: Sendable {
        /// A search, whose result must be reported to ``found(_:by:at:into:)``.
        case find(UInt64, ResponseKey)
        case store(ResponseKey, StoredResponse)
        case remove(ResponseRemoval)
    }

    /// A call to make. Its end must be reported to ``answered(_:with:at:into:)``.
    struct Start: Sendable {
        var call: UInt64
        var request: SocketRequest
        var transport: any APITransport
    }

    /// The steps to take, in this order within each kind.
    struct Actions {
        /// Operations to perform one at a time, after those of earlier events.
        var store: [StoreOperation] = []
        var starts: [Start] = []
        /// Calls that no caller waits for.
        var cancels: [UInt64] = []
        /// The results: one for each caller, and one for each refresh.
        var completions: [(caller: Caller, result: Result<Answer, SocketError>)] = []
        /// References to the user's objects that are no longer needed. They must be released outside every lock: their
        /// deinitializers may run any code.
        var released: [Asking] = []
    }

    /// The unit of searches, calls and sharing.
    private struct Slot: Hashable {
        var key: ResponseKey
        var transport: ObjectIdentifier
    }

    private enum Stage: Equatable {
        case search(UInt64)
        /// Waits for this call's answer.
        case call(UInt64)
        /// Waits for this call to end, and then begins its own.
        case next(UInt64)
    }

    private struct Waiter {
        var asking: Asking
        /// The rank of the caller. Callers are answered in the order in which they asked.
        var order: UInt64
        var deadline: NIODeadline
        var stage: Stage
    }

    private struct Search {
        var slot: Slot
        var callers: Set<Caller> = []
        /// The removals during the search, which does not find the answers that they cover.
        var cleared: [ResponseRemoval] = []
        /// Whether the answers for these callers were cleared after they asked.
        var isCleared = false
    }

    private struct Call {
        var slot: Slot?
        var callers: Set<Caller> = []
        var next: Set<Caller> = []
        /// The names of the managers that asked for it, including those of cancelled callers.
        var owners: Set<String> = []
        /// The kept answer, if its revision was sent to the server and it has not been cleared since.
        var revalidated: StoredResponse?
        /// Whether the revision of the kept answer was sent to the server.
        var sendsRevision = false
        /// Whether the answers for these callers were cleared after they asked. The call's answer is not kept then.
        var isCleared: Bool
        /// The time at which the call itself times out.
        var endsAt: NIODeadline
    }

    /// The time that callers wait beyond the time at which a call itself should have timed out.
    private static let grace = Duration.seconds(1)

    let maximumCallers: Int
    private(set) var statistics = ResponseCache.Statistics()
    private var waiters: [Caller: Waiter] = [:]
    private var searches: [UInt64: Search] = [:]
    private var calls: [UInt64: Call] = [:]
    /// The searches, and below the calls, that further callers may join.
    private var openSearches: [Slot: UInt64] = [:]
    private var openCalls: [Slot: UInt64] = [:]
    private var alarms = AlarmHeap<NIODeadline, Caller>()
    private var lastNumber: UInt64 = 0

    /// - Parameter maximumCallers: The number of callers that may wait; further ones fail with `tooManyInFlight`.
    init(maximumCallers: Int) {
        self.maximumCallers = maximumCallers
    }

    private mutating func nextNumber() -> UInt64 {
        self.lastNumber += 1
        return self.lastNumber
    }

    // MARK: Inspection

    var callerCount: Int { self.waiters.count }
    var callCount: Int { self.calls.count }
    var searchCount: Int { self.searches.count }
    func isRunning(_ call: UInt64) -> Bool { self.calls[call] != nil }

    /// The time at which ``timePassed(_:into:)`` must be called next; nil if it need not be.
    var nextAlarm: NIODeadline? { self.waiters.isEmpty ? nil : self.alarms.first?.time }

    // MARK: Asking

    mutating func ask(
        _ caller: Caller,
        _ asking: Asking,
        at now: APIClock.Moment,
        into actions: inout Actions
    ) {
        guard self.waiters.count < self.maximumCallers else {
            let error = SocketError(
                .tooManyInFlight,
                message: """
                    \(self.waiters.count) callers wait for calls of this cache's managers already \
                    (ResponseCache.maximumCallers); wait for some to complete
                    """
            )
            return actions.completions.append((caller, .failure(error)))
        }
        self.enter(caller, asking, at: now)
        guard let key = asking.key else {
            return self.begin(nil, for: [caller], revalidating: nil, isCleared: false, at: now, into: &actions)
        }
        let slot = Slot(key: key, transport: ObjectIdentifier(asking.transport))
        let number: UInt64
        if let open = self.openSearches[slot] {
            number = open
        } else {
            number = self.nextNumber()
            self.searches[number] = Search(slot: slot)
            self.openSearches[slot] = number
            actions.store.append(.find(number, key))
        }
        self.searches[number]?.callers.insert(caller)
        self.waiters[caller]?.stage = .search(number)
    }

    /// Adds a waiter, whose stage the calling function must set.
    private mutating func enter(_ caller: Caller, _ asking: Asking, at now: APIClock.Moment) {
        assert(self.waiters[caller] == nil, "a caller asks once")
        let timeout = now.time.advanced(clamping: TimeAmount(clamping: asking.timeout))
        let deadline = min(timeout, asking.request.deadline ?? .distantFuture)
        let order = self.nextNumber()
        self.waiters[caller] = Waiter(asking: asking, order: order, deadline: deadline, stage: .call(0))
        self.alarms.insert(deadline, caller)
        // The alarms of completed callers are still in the heap.
        if self.alarms.isCrowded(owners: self.waiters.count) {
            let waiters = self.waiters
            self.alarms.sweep { waiters[$0.key] != nil }
        }
    }

    /// Handles the result of a search.
    mutating func found(
        _ stored: StoredResponse?,
        by number: UInt64,
        at now: APIClock.Moment,
        into actions: inout Actions
    ) {
        guard let search = self.searches.removeValue(forKey: number) else { return }
        if self.openSearches[search.slot] == number { self.openSearches[search.slot] = nil }
        let stored = stored.flatMap { stored in
            search.cleared.contains { $0.covers(search.slot.key, stored) } ? nil : stored
        }
        let age = stored?.age(at: now.date)
        var asking: [Caller] = []
        for caller in self.inOrder(search.callers) {
            guard let waiter = self.waiters[caller] else { continue }
            guard let stored, let source = Self.source(age, for: waiter.asking) else {
                self.statistics.misses += 1
                asking.append(caller)
                continue
            }
            self.complete(caller, with: .success(Answer(response: stored.response, source: source)), into: &actions)
            if case .stale = source {
                self.statistics.staleHits += 1
                self.enter(caller.refresh, waiter.asking, at: now)
                asking.append(caller.refresh)
            } else {
                self.statistics.hits += 1
            }
        }
        let calls = self.statistics.calls
        self.call(search.slot, for: asking, revalidating: stored, isCleared: search.isCleared, at: now, into: &actions)
        let begun = self.statistics.calls - calls
        self.statistics.coalesced += max(0, asking.filter { !$0.isRefresh }.count - begun)
    }

    /// The source as which an answer of this age may be returned; nil if it may not.
    private static func source(_ age: Duration?, for asking: Asking) -> ResponseSource? {
        guard let age else { return nil }
        switch asking.policy {
        case .ignoringCache, .reloading: return nil
        case .returningCached: return age < asking.validity ? .cache(age: age) : nil
        case .returningStale(let staleness):
            if age < asking.validity { return .cache(age: age) }
            return age - asking.validity < staleness ? .stale(age: age) : nil
        }
    }

    // MARK: Calls

    /// Makes callers without a kept answer join the call in flight, or begins one for them.
    ///
    /// - Parameter stored: The kept answer, whose revision is sent to the server if it has one.
    private mutating func call(
        _ slot: Slot,
        for callers: [Caller],
        revalidating stored: StoredResponse?,
        isCleared: Bool,
        at now: APIClock.Moment,
        into actions: inout Actions
    ) {
        guard !isCleared, let open = self.openCalls[slot] else {
            // All these callers asked before the call begins.
            return self.begin(slot, for: callers, revalidating: stored, isCleared: isCleared, at: now, into: &actions)
        }
        for caller in callers {
            guard let asking = self.waiters[caller]?.asking else { continue }
            if asking.policy == .reloading {
                self.calls[open]?.next.insert(caller)
                self.waiters[caller]?.stage = .next(open)
            } else {
                self.calls[open]?.callers.insert(caller)
                self.calls[open]?.owners.insert(asking.owner)
                self.waiters[caller]?.stage = .call(open)
            }
        }
    }

    private mutating func begin(
        _ slot: Slot?,
        for callers: [Caller],
        revalidating stored: StoredResponse?,
        isCleared: Bool,
        at now: APIClock.Moment,
        into actions: inout Actions
    ) {
        guard let first = callers.first.flatMap({ self.waiters[$0] }) else { return }
        let number = self.nextNumber()
        var call = Call(slot: slot, callers: Set(callers), isCleared: isCleared, endsAt: first.deadline)
        for caller in callers {
            guard let waiter = self.waiters[caller] else { continue }
            call.endsAt = max(call.endsAt, waiter.deadline)
            call.owners.insert(waiter.asking.owner)
            self.waiters[caller]?.stage = .call(number)
        }
        var request = first.asking.request
        request.timeout = Duration(max(.zero, call.endsAt - now.time))
        if request.deadline != nil { request.deadline = call.endsAt }
        if slot != nil {
            self.statistics.calls += 1
            // A revision that the request itself states is kept.
            if let revision = stored?.revision, request.metadata[StoredResponse.revisionName] == nil {
                request.metadata[StoredResponse.revisionName] = revision
                call.sendsRevision = true
                call.revalidated = stored
            }
        }
        if let slot, !isCleared { self.openCalls[slot] = number }
        self.calls[number] = call
        actions.starts.append(Start(call: number, request: request, transport: first.asking.transport))
    }

    /// Handles the end of a call. Has no effect if no caller waits for it.
    mutating func answered(
        _ number: UInt64,
        with result: Result<SocketResponse, SocketError>,
        at now: APIClock.Moment,
        into actions: inout Actions
    ) {
        guard let call = self.take(number) else { return }
        switch result {
        case .success(let response):
            let stored = self.keep(StoredResponse.detached(response), of: call, at: now, into: &actions)
            self.end(
                call,
                with: .success(Answer(response: response, source: .network)),
                stored: stored,
                at: now,
                into: &actions
            )
        case .failure(let error) where call.sendsRevision && error.code == .notModified:
            self.statistics.revalidations += 1
            guard var renewed = call.revalidated?.response else {
                // The kept answer has been cleared since, so it must be fetched again.
                return self.again(call, for: call.callers, at: now, into: &actions)
            }
            if !error.metadata.isEmpty { renewed.metadata.merge(error.metadata) { $1 } }
            let stored = self.keep(renewed, of: call, at: now, into: &actions)
            self.end(
                call,
                with: .success(Answer(response: renewed, source: .revalidated)),
                stored: stored,
                at: now,
                into: &actions
            )
        case .failure(let error)
        where call.sendsRevision && (error.code == .featureNotAgreed || error.code == .invalidArgument):
            // Its connection has no metadata, or the request has no room for more.
            self.again(call, for: call.callers, at: now, into: &actions)
        case .failure(let error) where error.code == .timeout || error.code == .deadlineExceeded:
            let over = max(now.time, call.endsAt)
            let patient = call.callers.filter { (self.waiters[$0]?.deadline ?? .distantPast) > over }
            for caller in self.inOrder(call.callers.subtracting(patient)) {
                self.complete(caller, with: .failure(error), into: &actions)
            }
            self.again(call, for: patient, at: now, into: &actions)
        case .failure(let error):
            self.end(call, with: .failure(error), stored: call.revalidated, at: now, into: &actions)
        }
    }

    private mutating func take(_ number: UInt64) -> Call? {
        guard let call = self.calls.removeValue(forKey: number) else { return nil }
        if let slot = call.slot, self.openCalls[slot] == number { self.openCalls[slot] = nil }
        return call
    }

    /// Stores an answer and returns it; nil if it may not be kept.
    private mutating func keep(
        _ response: SocketResponse,
        of call: Call,
        at now: APIClock.Moment,
        into actions: inout Actions
    ) -> StoredResponse? {
        guard let slot = call.slot else { return nil }
        guard !call.isCleared else {
            self.statistics.clearedAnswers += 1
            return nil
        }
        let owners = call.owners.union(call.revalidated?.owners ?? [])
        let stored = StoredResponse(response, storedAt: now.date, owners: owners)
        actions.store.append(.store(slot.key, stored))
        return stored
    }

    /// Completes the callers of a call that has ended, and begins another for those that waited for its end.
    private mutating func end(
        _ call: Call,
        with result: Result<Answer, SocketError>,
        stored: StoredResponse?,
        at now: APIClock.Moment,
        into actions: inout Actions
    ) {
        for caller in self.inOrder(call.callers) { self.complete(caller, with: result, into: &actions) }
        guard let slot = call.slot else { return }
        let next = self.inOrder(call.next)
        self.call(slot, for: next, revalidating: stored, isCleared: call.isCleared, at: now, into: &actions)
    }

    /// Makes another call for these callers, without the revision of the kept answer. Callers that waited for the end
    /// of the previous call share it, since they asked before it begins.
    private mutating func again(
        _ call: Call,
        for callers: Set<Caller>,
        at now: APIClock.Moment,
        into actions: inout Actions
    ) {
        let callers = self.inOrder(callers.union(call.next))
        if let slot = call.slot {
            self.call(slot, for: callers, revalidating: nil, isCleared: call.isCleared, at: now, into: &actions)
        } else {
            self.begin(nil, for: callers, revalidating: nil, isCleared: false, at: now, into: &actions)
        }
    }

    // MARK: Ends

    private mutating func complete(
        _ caller: Caller,
        with result: Result<Answer, SocketError>,
        into actions: inout Actions
    ) {
        guard let waiter = self.waiters.removeValue(forKey: caller) else { return }
        actions.released.append(waiter.asking)
        if caller.isRefresh, case .failure = result { self.statistics.failedRefreshes += 1 }
        actions.completions.append((caller, result))
    }

    /// Completes a caller and its refresh with `cancelled`.
    mutating func cancel(_ caller: Caller, at now: APIClock.Moment, into actions: inout Actions) {
        for caller in [caller, caller.refresh] {
            guard let waiter = self.waiters[caller] else { continue }
            let error = SocketError(
                .cancelled,
                message: "the call of type \(waiter.asking.request.type) was cancelled",
                delivery: self.delivery(of: waiter)
            )
            self.giveUp(caller, because: error, at: now, into: &actions)
        }
    }

    /// Completes all requests of a manager with `cancelled`.
    mutating func cancelAll(ofManager number: UInt64, at now: APIClock.Moment, into actions: inout Actions) {
        let callers = Set(self.waiters.keys.lazy.filter { $0.manager == number })
        for caller in self.inOrder(callers) { self.cancel(caller, at: now, into: &actions) }
    }

    /// Completes the callers that have timed out.
    mutating func timePassed(_ now: APIClock.Moment, into actions: inout Actions) {
        while let alarm = self.alarms.popDue(now: now.time) {
            guard let waiter = self.waiters[alarm.key] else { continue }
            let due = self.due(waiter)
            guard due <= now.time else {
                self.alarms.insert(due, alarm.key)
                continue
            }
            self.giveUp(alarm.key, because: self.timedOut(waiter), at: now, into: &actions)
        }
    }

    /// The time at which a caller times out. If its call times out no later, the caller waits a little longer, since
    /// the call reports the timeout itself, with a better reason.
    private func due(_ waiter: Waiter) -> NIODeadline {
        guard case .call(let number) = waiter.stage, let call = self.calls[number], call.endsAt <= waiter.deadline
        else { return waiter.deadline }
        return waiter.deadline.advanced(clamping: TimeAmount(clamping: Self.grace))
    }

    private func timedOut(_ waiter: Waiter) -> SocketError {
        let what =
            switch waiter.stage {
            case .search: "the cache's store did not answer"
            case .call: "no answer to the call that it shares with others, which wait longer,"
            case .next: "another call for the same was in flight, which had to end before this one began,"
            }
        return SocketError(
            .timeout,
            message: "\(what) within \(waiter.asking.timeout) (type \(waiter.asking.request.type))",
            delivery: self.delivery(of: waiter)
        )
    }

    private func delivery(of waiter: Waiter) -> SocketError.Delivery {
        if case .call = waiter.stage { .sentUnknown } else { .notSent }
    }

    /// Completes a caller before its answer has arrived. Cancels its call if no other caller waits for it.
    private mutating func giveUp(
        _ caller: Caller,
        because error: SocketError,
        at now: APIClock.Moment,
        into actions: inout Actions
    ) {
        guard let stage = self.waiters[caller]?.stage else { return }
        self.complete(caller, with: .failure(error), into: &actions)
        switch stage {
        case .search(let number):
            self.searches[number]?.callers.remove(caller)
        case .next(let number):
            self.calls[number]?.next.remove(caller)
        case .call(let number):
            self.calls[number]?.callers.remove(caller)
            guard self.calls[number]?.callers.isEmpty == true, let call = self.take(number) else { return }
            actions.cancels.append(number)
            self.again(call, for: [], at: now, into: &actions)
        }
    }

    // MARK: Clearing

    /// Drops the answers that `removal` covers, kept ones and those of calls in flight.
    mutating func remove(_ removal: ResponseRemoval, into actions: inout Actions) {
        actions.store.append(.remove(removal))
        for (number, search) in self.searches {
            self.searches[number]?.cleared.append(removal)
            let owners = Set(search.callers.compactMap { self.waiters[$0]?.asking.owner })
            guard Self.covers(removal, search.slot, ownedBy: owners) else { continue }
            self.searches[number]?.isCleared = true
            if self.openSearches[search.slot] == number { self.openSearches[search.slot] = nil }
        }
        for (number, call) in self.calls {
            guard let slot = call.slot, Self.covers(removal, slot, ownedBy: call.owners) else { continue }
            self.calls[number]?.isCleared = true
            self.calls[number]?.revalidated = nil
            if self.openCalls[slot] == number { self.openCalls[slot] = nil }
        }
    }

    private static func covers(_ removal: ResponseRemoval, _ slot: Slot, ownedBy owners: Set<String>) -> Bool {
        switch removal {
        case .all: true
        case .ofType(let type): slot.key.type == type
        case .ofOwner(let name): owners.contains(name)
        case .forKey(let key): slot.key == key
        }
    }

    private func inOrder(_ callers: Set<Caller>) -> [Caller] {
        guard callers.count > 1 else { return Array(callers) }
        return callers.compactMap { caller in self.waiters[caller].map { (caller, $0.order) } }
            .sorted { $0.1 < $1.1 }
            .map(\.0)
    }
}
