// SPDX-License-Identifier: Apache-2.0
import Atomics
import HHSocket
import NIOConcurrencyHelpers
import NIOCore

/// Somebody whose connection can be closed to free what it holds.
protocol LedgerHolder: AnyObject, Sendable {
    /// Closes the connection, soon. Any thread.
    func evict()
}

/// The account of all that the server holds for one connection, in bytes of memory. Any thread.
///
/// It lives for as long as anything is held: a handler that was cancelled and has not returned holds its request though
/// the connection is gone.
final class LedgerAccount: LinkAccount, Sendable {
    /// The number of bytes by which the sums of principals and of the server may be wrong for one connection. Less than
    /// a connection costs by itself.
    private static let step = 4 << 10

    private struct State {
        var address: Principal?
        var identity: Principal?
        /// The number of bytes that the sums above know of.
        var passed = 0
        var holder: (any LedgerHolder)?
        var isCondemned = false
        var isOpen = false
    }

    private let ledger: Ledger
    private let shard: Int
    /// The cost of the connection by itself.
    private let baseCost: Int
    /// The sum of what is held.
    private let sum = ManagedAtomic(0)
    /// The number of bytes that the sums above know of, where it can be read without the lock.
    private let passed = ManagedAtomic(0)
    private let progressedAt: ManagedAtomic<UInt64>
    private let state: NIOLockedValueBox<State>

    /// - Parameters:
    ///   - shard: That of the connection's event loop.
    ///   - baseCost: The number of bytes that the connection costs by itself, from ``open(from:holder:)`` on.
    init(_ ledger: Ledger, shard: Int, baseCost: Int) {
        self.ledger = ledger
        self.shard = shard
        self.baseCost = baseCost
        self.progressedAt = ManagedAtomic(NIODeadline.now().uptimeNanoseconds)
        self.state = NIOLockedValueBox(State())
    }

    deinit {
        let state = self.state.withLockedValue { $0 }
        self.ledger.add(-state.passed, shard: self.shard)
        for principal in [state.address, state.identity] {
            guard let principal else { continue }
            principal.add(-state.passed)
            self.ledger.principals.leave(principal)
        }
    }

    /// The connection has begun.
    ///
    /// - Parameters:
    ///   - address: The client's address, where it has one.
    ///   - holder: Closes the connection.
    func open(from address: ClientAddress?, holder: any LedgerHolder) {
        let address = address.map { self.ledger.principals.enter(.address($0)) }
        self.state.withLockedValue { state in
            state.address = address
            state.holder = holder
            state.isOpen = true
            address?.add(state.passed)
        }
        self.ledger.opened(self, shard: self.shard, baseCost: self.baseCost)
        self.held(self.baseCost)
    }

    /// The connection has ended. What its handlers hold stays charged until they give it back.
    func close() {
        let isFirst = self.state.withLockedValue { state in
            defer { (state.isOpen, state.holder) = (false, nil) }
            return state.isOpen
        }
        guard isFirst else { return }
        self.ledger.closed(self, shard: self.shard, baseCost: self.baseCost)
        self.held(-self.baseCost)
        self.settle()
    }

    // MARK: Bytes

    /// The number of bytes that are held.
    var bytes: Int { self.sum.load(ordering: .relaxed) }

    /// Whether this connection, or all of them together, hold more bytes than they may.
    var isFull: Bool { self.bytes > self.ledger.maximumBytesPerConnection || self.ledger.isFull }

    /// Whether `more` bytes may be held for this connection.
    func hasRoom(for more: Int) -> Bool {
        self.bytes + more <= self.ledger.maximumBytesPerConnection && !self.ledger.isFull
    }

    /// Charges so many bytes more, or fewer.
    func held(_ change: Int) {
        let sum = self.sum.wrappingIncrementThenLoad(by: change, ordering: .relaxed)
        if abs(sum - self.passed.load(ordering: .relaxed)) >= Self.step { self.settle() }
    }

    /// Tells the sums above what has changed since they were last told.
    func settle() {
        self.state.withLockedValue { state in
            let sum = self.bytes
            let change = sum - state.passed
            guard change != 0 else { return }
            state.passed = sum
            self.passed.store(sum, ordering: .relaxed)
            state.address?.add(change)
            state.identity?.add(change)
            self.ledger.add(change, shard: self.shard)
        }
    }

    // MARK: Requests

    /// Admits one more request, until ``finishedRequest()``; false if the server has as many as it may.
    func startRequest() -> Bool { self.ledger.startRequest(shard: self.shard) }

    func finishedRequest() { self.ledger.finishedRequest(shard: self.shard) }

    // MARK: Principals

    /// From now on the connection belongs to this identity, too.
    func setIdentity(_ identity: String?) {
        let new = identity.map { self.ledger.principals.enter(.identity($0)) }
        let old: Principal? = self.state.withLockedValue { state in
            defer { state.identity = new }
            state.identity?.add(-state.passed)
            new?.add(state.passed)
            return state.identity
        }
        if let old { self.ledger.principals.leave(old) }
    }

    // MARK: Eviction

    /// Notes that the client sends, or takes, what is under way.
    func progressed(at now: NIODeadline) {
        self.progressedAt.store(now.uptimeNanoseconds, ordering: .relaxed)
    }

    /// The standing by which an eviction is decided; nil where the connection is not there, or has been told to go.
    func standing(now: NIODeadline) -> Standing? {
        self.state.withLockedValue { state in
            guard state.holder != nil, !state.isCondemned else { return nil }
            let principals = max(state.address?.bytes ?? 0, state.identity?.bytes ?? 0)
            let progressed = self.progressedAt.load(ordering: .relaxed)
            return Standing(
                bytes: self.bytes,
                principalBytes: max(principals, self.bytes),
                stall: .nanoseconds(Int64(clamping: max(now.uptimeNanoseconds, progressed) - progressed))
            )
        }
    }

    /// Has the connection closed.
    func condemn() {
        let holder = self.state.withLockedValue { state in
            state.isCondemned = true
            return state.holder
        }
        holder?.evict()
    }
}
