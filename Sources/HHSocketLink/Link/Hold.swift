// SPDX-License-Identifier: Apache-2.0
package import NIOCore

/// The account of a peer, which is charged for what is held for it: for a link's memory, and for each ``Hold``.
package protocol LinkAccount: AnyObject, Sendable {
    /// Changes the number of bytes that are held. Any thread.
    func held(_ change: Int)
    /// Changes the number of resources that are counted. Any thread.
    func counts(_ change: Int, of resource: Resource)
    /// Whether this number of bytes more may be kept of a link that ends, whose closing frees nothing. Any thread.
    func hasRoom(forLast bytes: Int) -> Bool
    /// Requests that the peer's connection be closed, since what comes from it cannot be kept. Any thread.
    func condemn()
    /// The time for which nothing more is read of a link that has ``LinkChannel/longUnitBytes`` of an incomplete unit;
    /// nil if reading continues. Called on the link's thread, after each read that leaves such a unit and after each
    /// pause.
    var pauseInLongUnits: TimeAmount? { get }
}

extension LinkAccount {
    /// Whether this number of bytes more is kept of a link whose peer has closed. If not, the connection is condemned.
    func keeps(last bytes: Int) -> Bool {
        if self.hasRoom(forLast: bytes) { return true }
        self.condemn()
        return false
    }
}

/// Something that a peer makes us hold, with its cost.
package enum Resource: Hashable, Sendable {
    /// The memory of one string of a peer's, in addition to its bytes: the header of its allocation, and its place in a
    /// table that is half empty.
    private static let stringCost = 64

    /// Memory, in bytes.
    case memory(Int)
    /// A file descriptor, which is counted.
    case descriptor
    /// A TLS handshake that is under way, in addition to its connection. It is counted, too.
    case handshake
    /// zlib's memory for a window of this many bits, from which messages are inflated.
    case inflater(window: Int)
    /// zlib's memory for a window of this many bits, into which messages are deflated.
    case deflater(window: Int)
    /// The strings that a request brings beside its body.
    case metadata(bytes: Int, strings: Int)
    /// The request that has opened a WebSocket, in bytes.
    case keptRequest(Int)

    /// The memory that it takes, in bytes, as measured and rounded up: an account that is too low lets the process
    /// grow.
    package var bytes: Int {
        switch self {
        case .memory(let bytes): bytes
        case .descriptor: 0
        case .handshake: 20 << 10
        // By the formulas of zconf.h, with what the states take besides.
        case .inflater(let window): (1 << window) + (8 << 10)
        case .deflater(let window): (1 << (window + 2)) + (1 << (Self.deflatingLevel(window: window) + 9)) + (8 << 10)
        case .metadata(let bytes, let strings): bytes + strings * Self.stringCost
        case .keptRequest(let bytes): bytes + Self.stringCost
        }
    }

    /// Whether its number matters, beside its memory.
    package var isCounted: Bool {
        switch self {
        case .descriptor, .handshake: true
        case .memory, .inflater, .deflater, .metadata, .keptRequest: false
        }
    }

    /// The level of zlib's memory: its other tables get as much as its window, and fewer than 5 make blocks that are
    /// too small to be useful.
    package static func deflatingLevel(window: Int) -> Int { max(window - 7, 5) }
}

/// The charge for a resource, from its beginning to its end.
///
/// Whatever keeps a resource for a peer owns its hold, so that nothing is kept without a charge, and no charge is
/// forgotten.
package struct Hold: ~Copyable, Sendable {
    private let account: (any LinkAccount)?
    private let resource: Resource
    /// The number of bytes that are charged.
    package private(set) var bytes: Int

    /// - Parameter account: The account of the peer; nil: the resource is held for ourselves, as at a client.
    package init(_ resource: Resource, of account: (any LinkAccount)?) {
        self.account = account
        self.resource = resource
        self.bytes = resource.bytes
        if self.bytes != 0 { account?.held(self.bytes) }
        if resource.isCounted { account?.counts(1, of: resource) }
    }

    deinit {
        if self.bytes != 0 { self.account?.held(-self.bytes) }
        if self.resource.isCounted { self.account?.counts(-1, of: self.resource) }
    }

    /// The resource takes this number of bytes from now on.
    package mutating func change(to bytes: Int) {
        guard bytes != self.bytes else { return }
        self.account?.held(bytes - self.bytes)
        self.bytes = bytes
    }
}
