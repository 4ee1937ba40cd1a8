// SPDX-License-Identifier: Apache-2.0
import HHSocketLink
import NIOCore

/// The answer to a request with an idempotency key.
struct KeptAnswer: Sendable {
    var status: Status
    var body: ByteBuffer
    var metadata: [String: String]

    /// The answer with a body that holds on to hardly more than its own bytes: one that is a slice of a large buffer,
    /// such as an echo of the request, is copied.
    var compact: KeptAnswer {
        var compact = self
        compact.body = self.body.detached
        return compact
    }

    /// The memory that keeping it for `key` costs, in bytes.
    func cost(_ key: IdempotencyKey) -> Int {
        let metadata = WireMetadata.length(of: self.metadata) + self.metadata.count * Self.pairOverhead
        return self.body.storageCapacity + metadata + key.key.utf8.count + (key.identity?.utf8.count ?? 0)
            + Self.overhead
    }

    /// The cost of an answer in addition to its body, its metadata and its key: its places in three tables that are
    /// half empty, a fingerprint, and the headers of allocations.
    static let overhead = 512
    /// The cost of a pair of metadata in addition to its bytes.
    private static let pairOverhead = 128
}

/// The identity of a request among all that the server receives.
struct IdempotencyKey: Hashable, Sendable {
    /// The client identity that the key belongs to; nil for clients without one.
    var identity: String?
    var key: String
}

/// The owner that is charged for an answer: the one whose request caused it.
enum IdempotencyOwner: Hashable, Sendable {
    case identity(String)
    /// Clients without an identity, by their address.
    case address(ClientAddress)
    /// Clients without an identity and without an address, on Unix domain sockets.
    case local

    var isKnown: Bool {
        if case .identity = self { true } else { false }
    }
}

/// The fingerprint that distinguishes a request from another with the same key.
struct RequestFingerprint: Hashable, Sendable {
    var type: UInt32
    /// SHA-256 of the body, decompressed.
    var body: [UInt8]

    init(type: UInt32, body: ByteBuffer) {
        self.type = type
        self.body = body.withUnsafeReadableBytes { SHA256.hash(of: $0) }
    }
}
