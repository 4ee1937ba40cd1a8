// SPDX-License-Identifier: Apache-2.0
import NIOCore

/// The open connections of each address, and the rate of its new ones. The time is passed in.
///
/// An address is forgotten once it has no connection and may make as many new ones as ever. Addresses without
/// connections beyond ``maximumIdle`` are forgotten before, the oldest first.
struct AddressTable: Sendable {
    struct Limits: Sendable {
        /// The connections of one address that may be open.
        var connections: Int
        /// The connections of all addresses that may be open.
        var total: Int
        /// The rate of new connections of one address; nil: no limit.
        var rate: RequestRate?

        /// Whether an address has a limit at all.
        var isNeeded: Bool { self.connections < .max || self.rate != nil }

        /// The share of a network with several addresses.
        ///
        /// - Parameter level: 0 for an address, 1 for an IPv6 network of 56 bits, 2 for one of 48 bits: twice and four
        ///   times as much, but at most a quarter and a half of the connections that the address leaves to others.
        func connections(level: Int) -> Int {
            guard level > 0, self.connections < .max else { return self.connections }
            let (multiple, isTooMany) = self.connections.multipliedReportingOverflow(by: 1 << level)
            let rest = max(0, self.total - self.connections)
            return min(isTooMany ? .max : multiple, self.connections + rest / 4 * level)
        }

        func rate(level: Int) -> RequestRate? {
            guard let rate = self.rate else { return nil }
            let factor = 1 << level
            let burst = rate.burst.multipliedReportingOverflow(by: factor)
            return RequestRate(
                perSecond: rate.perSecond * Double(factor),
                burst: burst.overflow ? .max : burst.partialValue
            )
        }
    }

    private struct Entry {
        var count = 0
        var bucket: TokenBucket?
        /// Whether it is in ``idle``.
        var isQueued = false
    }

    /// The number of addresses without connections that are remembered.
    static let maximumIdle = 4_096

    private let limits: Limits
    private var entries: [ClientAddress: Entry] = [:]
    /// Addresses that had no connection at some time, in the order in which they lost their last one.
    private var idle = CircularBuffer<ClientAddress>()

    init(_ limits: Limits) {
        self.limits = limits
    }

    /// The number of addresses and networks that are remembered.
    var count: Int { self.entries.count }

    /// Counts a connection of `address`, until ``release(_:now:)``.
    ///
    /// - Returns: The reason why it is refused; nil if it is counted.
    mutating func enter(_ address: ClientAddress, now: NIODeadline) -> ConnectionQuota.Refusal? {
        self.forget(now: now)
        let networks = [address] + address.around
        for (level, network) in networks.enumerated() {
            let entry = self.entries[network] ?? self.newEntry(level: level, now: now)
            guard entry.count < self.limits.connections(level: level) else { return .tooManyFromOneAddress }
            guard entry.bucket?.hasToken(now: now) ?? true else { return .tooOftenFromOneAddress }
        }
        for (level, network) in networks.enumerated() {
            var entry = self.entries[network] ?? self.newEntry(level: level, now: now)
            entry.count += 1
            _ = entry.bucket?.take(now: now)
            self.entries[network] = entry
        }
        return nil
    }

    private func newEntry(level: Int, now: NIODeadline) -> Entry {
        Entry(bucket: self.limits.rate(level: level).map { TokenBucket($0, now: now) })
    }

    mutating func release(_ address: ClientAddress, now: NIODeadline) {
        for network in [address] + address.around {
            guard var entry = self.entries[network] else { continue }
            entry.count -= 1
            if entry.count == 0, !entry.isQueued {
                entry.isQueued = true
                self.idle.append(network)
            }
            self.entries[network] = entry
        }
        self.forget(now: now)
    }

    /// Forgets a few of the addresses that need not be remembered any longer.
    private mutating func forget(now: NIODeadline) {
        // More than one call adds, so that they become fewer.
        for _ in 0..<8 {
            guard let address = self.idle.first else { return }
            guard let entry = self.entries[address], entry.count == 0 else {
                self.idle.removeFirst()
                self.entries[address]?.isQueued = false
                continue
            }
            guard self.idle.count > Self.maximumIdle || (entry.bucket?.isFull(now: now) ?? true) else { return }
            self.idle.removeFirst()
            self.entries[address] = nil
        }
    }
}
