// SPDX-License-Identifier: Apache-2.0
@testable import HHSocketRPC

/// The required delivery of pushes: a list of waiting ones for each subscriber.
struct ModelPushes {
    struct Subscriber {
        var type: UInt32?
        var policy: PushBufferingPolicy
        var waiting: [String] = []
        var holdsReading = false
        var isGone = false
    }

    let limits: ModelClient.Limits
    var subscribers: [Subscriber] = []
    /// Whether the client was released, and no longer controls the connection.
    var isOver = false
    // The results of a step.
    var taken: [String] = []
    var unclaimed: [String] = []
    // The results of all steps.
    var count = 0
    var dropped = 0

    init(limits: ModelClient.Limits) {
        self.limits = limits
    }

    var suspendsReading: Bool { self.subscribers.contains { $0.holdsReading } }

    mutating func subscribe(_ type: UInt32?, _ policy: PushBufferingPolicy) {
        self.subscribers.append(Subscriber(type: type, policy: policy))
    }

    mutating func unsubscribe(_ number: Int) {
        self.subscribers[number].isGone = true
        self.subscribers[number].waiting = []
        self.subscribers[number].holdsReading = false
    }

    mutating func receive(_ type: UInt32, _ body: String) {
        self.count += 1
        let claiming = self.subscribers.indices.filter {
            !self.subscribers[$0].isGone && (self.subscribers[$0].type == nil || self.subscribers[$0].type == type)
        }
        if claiming.isEmpty { self.unclaimed.append("\(type) \(body)") }
        for number in claiming { self.keep(body, number) }
    }

    private mutating func keep(_ body: String, _ number: Int) {
        let waiting = self.subscribers[number].waiting.count
        switch self.subscribers[number].policy {
        case .dropOldest(let limit) where waiting == max(1, limit) + self.limits.morePushes:
            self.subscribers[number].waiting.removeFirst()
            self.subscribers[number].waiting.append(body)
            self.dropped += 1
        case .dropNewest(let limit) where waiting == max(1, limit) + self.limits.morePushes:
            self.dropped += 1
        case .suspendReading(let limit) where waiting + 1 >= max(1, limit) + self.limits.morePushes:
            self.subscribers[number].waiting.append(body)
            self.subscribers[number].holdsReading = true
        default:
            self.subscribers[number].waiting.append(body)
        }
    }

    mutating func take(_ number: Int) {
        guard !self.subscribers[number].waiting.isEmpty else { return self.taken.append("\(number): nothing") }
        self.taken.append("\(number): \(self.subscribers[number].waiting.removeFirst())")
        guard !self.isOver, case .suspendReading(let limit) = self.subscribers[number].policy,
            self.subscribers[number].waiting.count <= max(1, limit) / self.limits.releasingPart
        else { return }
        self.subscribers[number].holdsReading = false
    }
}
