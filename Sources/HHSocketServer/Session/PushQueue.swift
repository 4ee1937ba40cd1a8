// SPDX-License-Identifier: Apache-2.0
import DequeModule
import HHSocketLink
import NIOCore

/// The pushes that wait for one slow client.
struct PushQueue: Sendable {
    /// A push, encoded.
    struct Push: Sendable {
        var bytes: OwnedBytes
        /// The charge for the push's bytes if it is sent to several clients, which is made once.
        var share: SharedCharge?
        /// The pieces of the push, if it is long.
        var cut: Cut?

        /// The frame to be split; nil for one that is sent whole.
        var frame: Frame? {
            guard let cut = self.cut,
                let payload = self.bytes.slice(at: Int(cut.start), length: Int(cut.length))
            else { return nil }
            return Frame(type: cut.type, serial: cut.serial, payload: payload)
        }
    }

    /// The parts of an encoded push that are needed to send it in pieces.
    struct Cut: Sendable {
        var type: UInt32
        var serial: UInt32
        /// The number of bytes before its payload.
        var start: UInt32
        var length: UInt32
    }

    private var waiting: Deque<Push> = []
    private(set) var bytes = 0
    /// The memory that they cost this connection, in bytes.
    private(set) var cost = 0
    private let maximumCount: Int
    private let maximumBytes: Int

    init(maximumCount: Int, maximumBytes: Int) {
        self.maximumCount = maximumCount
        self.maximumBytes = maximumBytes
    }

    var isEmpty: Bool { self.waiting.isEmpty }
    var count: Int { self.waiting.count }

    /// Adds a push, and returns whether it was accepted. One push is always accepted.
    mutating func append(_ push: Push) -> Bool {
        let length = push.bytes.count
        guard
            self.waiting.isEmpty
                || (self.waiting.count < self.maximumCount && self.bytes + length <= self.maximumBytes)
        else { return false }
        self.waiting.append(push)
        self.bytes += length
        self.cost += Self.cost(of: push)
        return true
    }

    mutating func popFirst() -> Push? {
        guard let push = self.waiting.popFirst() else { return nil }
        self.bytes -= push.bytes.count
        self.cost -= Self.cost(of: push)
        // It is rare that many pushes wait.
        if self.waiting.isEmpty { self.waiting = [] }
        return push
    }

    mutating func removeAll() {
        self.waiting = []
        self.bytes = 0
        self.cost = 0
    }

    private static func cost(of push: Push) -> Int {
        ConnectionCost.waitingPush + (push.share == nil ? push.bytes.charge : 0)
    }
}
