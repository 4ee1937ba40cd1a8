// SPDX-License-Identifier: Apache-2.0
import Atomics
import HHSocketLink
import NIOConcurrencyHelpers
import NIOCore

/// The number of connections, in total and from each address.
///
/// A connection counts from when it is accepted (``enter()``), and for its address once that is known
/// (``enter(_:now:)``), which is later behind a proxy: see ``ConnectionSlot``.
final class ConnectionQuota: Sendable {
    enum Refusal: Hashable, Sendable {
        case tooMany
        case tooManyFromOneAddress
        case tooOftenFromOneAddress
    }

    struct Limits: Sendable {
        /// The number of connections that may be open.
        var maximum: Int
        /// The number of connections beyond that which may be open while others are closed for them.
        var overshoot: Int
        /// The number of refused connections that may be notified at a time. Further ones are closed without
        /// notification.
        var maximumRefusals: Int
        var perAddress: AddressTable.Limits

        /// - Parameter descriptors: The number of descriptors that the process may have; nil if it is not known.
        init(_ limits: ServerLimits, descriptors: Int?, loops: Int) {
            let available = descriptors.map { max(1, $0 - DescriptorLimit.reserve(of: $0, loops: loops)) } ?? .max
            self.maximum = limits.maximumConnections ?? available
            // Connections beyond the maximum use the reserve, at most a quarter of it.
            let spare = max(0, (descriptors ?? .max) - min(self.maximum, available))
            self.overshoot = min(256, DescriptorLimit.beyond(of: spare))
            self.maximumRefusals = min(1_024, DescriptorLimit.beyond(of: spare))
            self.perAddress = AddressTable.Limits(
                connections: limits.maximumConnectionsPerAddress
                    ?? (self.maximum == .max ? .max : max(1, self.maximum / 2)),
                total: self.maximum,
                rate: limits.connectionRatePerAddress
            )
        }
    }

    /// The number of refused connections that may go through a TLS handshake at a time, to be notified.
    static let maximumRefusalsOverTLS = 16

    let limits: Limits
    private let count = ManagedAtomic(0)
    private let refused = ManagedAtomic(0)
    /// Shards by address, so that event loops do not wait for one another.
    private let addresses: [NIOLockedValueBox<AddressTable>]
    let time: SocketTime

    /// - Parameter time: The clock of the rates; the system's by default.
    init(_ limits: Limits, time: SocketTime = SocketTime()) {
        self.limits = limits
        self.time = time
        self.addresses = (0..<16).map { _ in NIOLockedValueBox(AddressTable(limits.perAddress)) }
    }

    var total: Int { self.count.load(ordering: .relaxed) }
    /// The number of connections beyond the maximum.
    var excess: Int { max(0, self.total - self.limits.maximum) }

    /// Counts a connection, until ``release()``.
    ///
    /// - Returns: Whether another connection must be closed for it; nil if there are far too many, so that it is not
    ///   counted.
    func enter() -> Bool? {
        let before = self.count.loadThenWrappingIncrement(ordering: .relaxed)
        // Written so that it cannot overflow.
        guard before < self.limits.maximum || before - self.limits.maximum < self.limits.overshoot else {
            self.release()
            return nil
        }
        return before >= self.limits.maximum
    }

    func release() {
        self.count.wrappingDecrement(ordering: .relaxed)
    }

    /// Counts a connection for its address, until ``release(_:now:)``; nil stands for no address, and has no limits.
    ///
    /// - Returns: The reason for a refusal; nil if the connection is counted.
    func enter(_ address: ClientAddress?, now: NIODeadline) -> Refusal? {
        guard let address, self.limits.perAddress.isNeeded else { return nil }
        return self.table(of: address).withLockedValue { $0.enter(address, now: now) }
    }

    func release(_ address: ClientAddress?, now: NIODeadline) {
        guard let address, self.limits.perAddress.isNeeded else { return }
        self.table(of: address).withLockedValue { $0.release(address, now: now) }
    }

    private func table(of address: ClientAddress) -> NIOLockedValueBox<AddressTable> {
        self.addresses.shard(of: address.largest)
    }

    /// Whether a refused connection may be sent a go-away; then ``refusalIsOver()`` must follow.
    ///
    /// - Parameter maximum: The number of others that may be notified at the moment.
    func beginRefusal(maximum: Int) -> Bool {
        guard self.refused.loadThenWrappingIncrement(ordering: .relaxed) >= maximum else { return true }
        self.refusalIsOver()
        return false
    }

    func refusalIsOver() {
        self.refused.wrappingDecrement(ordering: .relaxed)
    }
}

/// One connection's slot in the quota; on its event loop.
final class ConnectionSlot {
    private let quota: ConnectionQuota
    private var address: ClientAddress?
    private var isCounted: Bool
    private let needsRoom: Bool

    /// Takes a slot for a connection that has been accepted, until ``release()``.
    init(in quota: ConnectionQuota) {
        self.quota = quota
        let needsRoom = quota.enter()
        self.isCounted = needsRoom != nil
        self.needsRoom = needsRoom ?? false
    }

    /// Admits the connection by its client's address, or releases its slot.
    ///
    /// - Parameters:
    ///   - address: Nil if the client has none, and no limit of addresses.
    ///   - makeRoom: Closes another connection soon; false if none may be closed. It is not called for a client that is
    ///     refused for its address, so that such a client causes no other connection to be closed.
    /// - Returns: The reason why the connection is refused; nil if it is not.
    func admit(
        _ address: ClientAddress?,
        now: NIODeadline,
        makingRoom makeRoom: () -> Bool
    ) -> ConnectionQuota.Refusal? {
        if let refusal = self.quota.enter(address, now: now) {
            self.release()
            return refusal
        }
        self.address = address
        guard self.isCounted, !self.needsRoom || makeRoom() else {
            self.release()
            return .tooMany
        }
        return nil
    }

    func release() {
        if self.isCounted { self.quota.release() }
        if let address = self.address { self.quota.release(address, now: self.quota.time.now()) }
        self.isCounted = false
        self.address = nil
    }
}
