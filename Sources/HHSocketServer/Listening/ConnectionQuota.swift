import HHSocket
import NIOConcurrencyHelpers
import NIOCore

/// The number of connections, in all and from each address.
final class ConnectionQuota: Sendable {
    enum Refusal: Hashable, Sendable {
        case tooMany
        case tooManyFromOneAddress
    }

    /// The origin of a connection: an IPv4 address, or an IPv6 network of 64 bits.
    struct Origin: Hashable, Sendable {
        private let bits: UInt64
        private let isIPv4: Bool

        /// Fails for an address without an IP address.
        init?(_ address: SocketAddress?) {
            switch address {
            case .v4(let address):
                self.bits = address.bytes.reduce(0) { $0 << 8 | UInt64($1) }
                self.isIPv4 = true
            case .v6(let address):
                let bytes = address.bytes
                let high = bytes.prefix(8).reduce(UInt64(0)) { $0 << 8 | UInt64($1) }
                // An IPv4 address as an IPv6 socket reports it: ::ffff:a.b.c.d.
                self.isIPv4 = high == 0 && Array(bytes[8..<12]) == [0, 0, 0xFF, 0xFF]
                self.bits = self.isIPv4 ? bytes.suffix(4).reduce(UInt64(0)) { $0 << 8 | UInt64($1) } : high
            case .unixDomainSocket, nil:
                return nil
            }
        }
    }

    private struct State {
        var total = 0
        var origins: [Origin: Int] = [:]
        /// The number of refused connections that stay open until they are notified.
        var refused = 0
    }

    /// The number of refused connections that may be notified at a time. Further ones are closed without notification.
    static let maximumRefusals = 1_024

    private let maximum: Int?
    private let maximumPerOrigin: Int?
    private let state = NIOLockedValueBox(State())

    init(maximum: Int?, perAddress: Int?) {
        self.maximum = maximum
        self.maximumPerOrigin = perAddress
    }

    var total: Int { self.state.withLockedValue { $0.total } }

    /// - Returns: The reason for a refusal; nil if the connection is counted, until ``leave(_:)``.
    func enter(_ origin: Origin?) -> Refusal? {
        self.state.withLockedValue { state in
            if let maximum = self.maximum, state.total >= maximum { return .tooMany }
            if let maximum = self.maximumPerOrigin, let origin {
                let count = state.origins[origin, default: 0]
                if count >= maximum { return .tooManyFromOneAddress }
                state.origins[origin] = count + 1
            }
            state.total += 1
            return nil
        }
    }

    func leave(_ origin: Origin?) {
        self.state.withLockedValue { state in
            state.total -= 1
            guard self.maximumPerOrigin != nil, let origin, let count = state.origins[origin] else { return }
            state.origins[origin] = count > 1 ? count - 1 : nil
        }
    }

    /// Whether a refused connection may be sent a go-away; then ``refusalIsOver()`` must follow.
    func beginRefusal() -> Bool {
        self.state.withLockedValue { state in
            guard state.refused < Self.maximumRefusals else { return false }
            state.refused += 1
            return true
        }
    }

    func refusalIsOver() {
        self.state.withLockedValue { $0.refused -= 1 }
    }
}
