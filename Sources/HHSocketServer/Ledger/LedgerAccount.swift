// SPDX-License-Identifier: Apache-2.0
import Atomics
import HHSocketLink
import NIOConcurrencyHelpers
import NIOCore

/// The owner of a connection that can be closed to free its memory.
protocol LedgerHolder: AnyObject, Sendable {
    /// Closes the connection, soon. Any thread.
    func evict()
}

/// The account of everything that the server holds for one connection, in bytes of memory. Any thread.
///
/// It exists as long as anything is held: a cancelled handler that has not returned holds its request even after the
/// connection has ended.
final class LedgerAccount: LinkAccount, Sendable {
    /// The number of bytes by which the sums of principals and of the server may be wrong for one connection. Less than
    /// a connection costs by itself.
    private static let step = 4 << 10
    /// The time for which nothing more is read of a long unit before it is decided again.
    private static let pauseWhenNearlyFull = TimeAmount.milliseconds(50)

    private struct State {
        var address: Principal?
        var identity: Principal?
        var holder: (any LedgerHolder)?
        var isCondemned = false
        var isOpen = false
        /// The cost of the connection by itself.
        var baseCost: Int
    }

    /// Numbers that are read without the lock. In one piece of memory, since an object for each would cost every
    /// connection as much again as its account.
    private struct Numbers: @unchecked Sendable {
        // Proof of Sendable: the memory is accessed only atomically, until the account releases it.
        private let memory = UnsafeMutablePointer<UnsafeAtomic<Int>.Storage>.allocate(capacity: 3)

        init(progressedAt: NIODeadline) {
            self.memory.initialize(repeating: .init(0), count: 3)
            self.progressedAt.store(Int(clamping: progressedAt.uptimeNanoseconds), ordering: .relaxed)
        }

        /// The sum of the held bytes.
        var sum: UnsafeAtomic<Int> { UnsafeAtomic(at: self.memory) }
        /// The number of bytes that were passed on to the sums above. Changed only with the lock.
        var passed: UnsafeAtomic<Int> { UnsafeAtomic(at: self.memory + 1) }
        /// The time of the last progress, in nanoseconds.
        var progressedAt: UnsafeAtomic<Int> { UnsafeAtomic(at: self.memory + 2) }

        func release() { self.memory.deallocate() }
    }

    private let ledger: Ledger
    private let shard: Int
    private let numbers: Numbers
    private let state: NIOLockedValueBox<State>

    /// - Parameters:
    ///   - shard: The shard of the connection's event loop.
    ///   - baseCost: The number of bytes that the connection costs by itself, from ``open(from:holder:)`` on.
    init(_ ledger: Ledger, shard: Int, baseCost: Int) {
        self.ledger = ledger
        self.shard = shard
        self.numbers = Numbers(progressedAt: ledger.time.now())
        self.state = NIOLockedValueBox(State(baseCost: baseCost))
    }

    deinit {
        let state = self.state.withLockedValue { $0 }
        self.ledger.add(-self.passed, shard: self.shard)
        for principal in [state.address, state.identity] {
            guard let principal else { continue }
            principal.add(-self.passed)
            self.ledger.principals.release(principal)
        }
        self.numbers.release()
    }

    private var passed: Int { self.numbers.passed.load(ordering: .relaxed) }

    /// The connection has begun.
    ///
    /// - Parameters:
    ///   - address: The client's address, if it has one.
    ///   - holder: Closes the connection.
    func open(from address: ClientAddress?, holder: any LedgerHolder) {
        let baseCost = self.state.withLockedValue { state in
            state.holder = holder
            state.isOpen = true
            return state.baseCost
        }
        self.setAddress(address)
        self.ledger.opened(self, shard: self.shard, baseCost: baseCost)
        self.counts(1, of: .descriptor)
        self.held(baseCost)
    }

    /// The connection costs this number of bytes by itself from now on.
    func changeBaseCost(to baseCost: Int) {
        let change = self.state.withLockedValue { state in
            guard state.isOpen else { return 0 }
            defer { state.baseCost = baseCost }
            return baseCost - state.baseCost
        }
        guard change != 0 else { return }
        self.ledger.baseCostChanged(by: change, shard: self.shard)
        self.held(change)
    }

    /// The connection has ended. Memory of its handlers stays charged until they release it.
    func close() {
        let baseCost: Int? = self.state.withLockedValue { state in
            defer { (state.isOpen, state.holder) = (false, nil) }
            return state.isOpen ? state.baseCost : nil
        }
        guard let baseCost else { return }
        self.ledger.closed(self, shard: self.shard, baseCost: baseCost)
        self.counts(-1, of: .descriptor)
        self.held(-baseCost)
        self.settle()
    }

    // MARK: Bytes

    /// The number of bytes that are held.
    var bytes: Int { self.numbers.sum.load(ordering: .relaxed) }

    /// Whether this connection, or all of them together, hold more bytes than they may.
    var isFull: Bool { !self.hasRoom(for: 0) }

    /// Whether `more` bytes may be held for this connection.
    func hasRoom(for more: Int) -> Bool {
        let bytes = self.bytes + more
        return bytes <= self.ledger.maximumBytesPerConnection
            && !self.ledger.isFull(forOneThatHolds: bytes - self.state.withLockedValue { $0.baseCost })
    }

    /// Whether this number of bytes more may be kept of a connection that ends: not while others are closed to free
    /// memory, since nothing frees these bytes before a handler takes them.
    func hasRoom(forLast bytes: Int) -> Bool {
        self.bytes + bytes <= self.ledger.maximumBytesPerConnection && !self.ledger.isNearlyFull
    }

    func counts(_ change: Int, of resource: Resource) {
        switch resource {
        case .descriptor: self.ledger.descriptors.wrappingIncrement(by: change, ordering: .relaxed)
        case .handshake: self.ledger.handshakes.wrappingIncrement(by: change, ordering: .relaxed)
        // Charged by their memory alone: see `Resource.isCounted`.
        case .memory, .inflater, .deflater, .metadata, .keptRequest: break
        }
    }

    /// Charges this number of bytes more, or fewer if negative.
    func held(_ change: Int) {
        let sum = self.numbers.sum.wrappingIncrementThenLoad(by: change, ordering: .relaxed)
        if abs(sum - self.passed) >= Self.step { self.settle() }
    }

    /// Passes changes on to the sums above.
    func settle() {
        self.state.withLockedValue { state in
            let sum = self.bytes
            let change = sum - self.passed
            guard change != 0 else { return }
            self.numbers.passed.store(sum, ordering: .relaxed)
            state.address?.add(change)
            state.identity?.add(change)
            self.ledger.add(change, shard: self.shard)
        }
    }

    /// A new client is not punished for what others hold: those are being closed, and this client waits.
    ///
    /// This begins when connections are closed and not when the limit is reached: otherwise the units of those that
    /// are being closed would fill the rest meanwhile, and requests of others would be refused.
    var pauseInLongUnits: TimeAmount? { self.ledger.isNearlyFull ? Self.pauseWhenNearlyFull : nil }

    // MARK: Requests

    /// Admits one more request, until ``finishedRequest()``; false if the server's limit is reached.
    func startRequest() -> Bool { self.ledger.startRequest(shard: self.shard) }

    func finishedRequest() { self.ledger.finishedRequest(shard: self.shard) }

    // MARK: Principals

    /// From now on the connection belongs to this address; nil for none.
    func setAddress(_ address: ClientAddress?) { self.replace(\.address, by: address.map { .address($0) }) }

    /// From now on the connection belongs to this identity, too.
    func setIdentity(_ identity: String?) { self.replace(\.identity, by: identity.map { .identity($0) }) }

    /// Identifies the identity, or else the address, while the connection exists; 0 without either.
    var principalID: UInt64 {
        self.state.withLockedValue { state in
            guard let principal = state.identity ?? state.address else { return 0 }
            return UInt64(UInt(bitPattern: ObjectIdentifier(principal)))
        }
    }

    private func replace(_ principal: WritableKeyPath<State, Principal?>, by key: Principal.Key?) {
        let new = key.map { self.ledger.principals.enter($0) }
        let old: Principal? = self.state.withLockedValue { state in
            let old = state[keyPath: principal]
            state[keyPath: principal] = new
            old?.add(-self.passed)
            new?.add(self.passed)
            return old
        }
        if let old { self.ledger.principals.release(old) }
    }

    /// The time by which the client is judged.
    func now() -> NIODeadline { self.ledger.time.now() }

    // MARK: Eviction

    /// Records progress of the client's sending or reading.
    func progressed(at now: NIODeadline) {
        self.numbers.progressedAt.store(Int(clamping: now.uptimeNanoseconds), ordering: .relaxed)
    }

    /// The standing for the choice of evictions; nil if the connection has ended, or was already sent away.
    func standing(now: NIODeadline) -> Standing? {
        self.state.withLockedValue { state in
            guard state.holder != nil, !state.isCondemned else { return nil }
            let principals = max(state.address?.bytes ?? 0, state.identity?.bytes ?? 0)
            let progressed = self.numbers.progressedAt.load(ordering: .relaxed)
            return Standing(
                bytes: self.bytes - state.baseCost,
                baseCost: state.baseCost,
                principalBytes: max(principals, self.bytes),
                stall: .nanoseconds(Int64(max(0, Int(clamping: now.uptimeNanoseconds) - progressed)))
            )
        }
    }

    /// Requests that the connection be closed.
    func condemn() {
        let holder = self.state.withLockedValue { state in
            state.isCondemned = true
            return state.holder
        }
        holder?.evict()
    }
}
