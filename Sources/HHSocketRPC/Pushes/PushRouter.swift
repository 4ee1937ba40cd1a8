// SPDX-License-Identifier: Apache-2.0
import DequeModule
import HHSocket

/// The subscribers of each type of push. Socket thread only.
///
/// Pushes that arrive together are gathered for each subscriber, and handed over together.
struct PushRouter {
    private final class Subscriber {
        let inbox: PushInbox
        /// The pushes that have arrived and are not handed over yet.
        private var pushes: Deque<SocketPush> = []

        init(_ inbox: PushInbox) {
            self.inbox = inbox
        }

        /// Whether no push waits to be handed over.
        var isIdle: Bool { self.pushes.isEmpty }

        func gather(_ push: consuming SocketPush) { self.pushes.append(push) }

        func handOver() -> InboxAppended { self.inbox.append(contentsOf: &self.pushes) }
    }

    /// The subscribers by type; nil for those of every type.
    private var subscribers: [UInt32?: [Subscriber]] = [:]
    /// The subscribers with gathered pushes.
    private var waiting: [Subscriber] = []

    mutating func add(_ inbox: PushInbox, _ type: UInt32?) {
        self.subscribers[type, default: []].append(Subscriber(inbox))
    }

    mutating func remove(_ inbox: PushInbox, _ type: UInt32?) {
        self.subscribers[type]?.removeAll { $0.inbox === inbox }
        if self.subscribers[type]?.isEmpty == true { self.subscribers[type] = nil }
    }

    /// Gathers the push for each of its subscribers. Returns it if it has none.
    mutating func route(_ push: consuming SocketPush) -> SocketPush? {
        let ofType = self.subscribers[push.type]
        let ofAll = self.subscribers[nil]
        guard let others = ofAll else {
            // Usually there is one subscriber, which gets the push itself without a copy.
            if let subscribers = ofType, subscribers.count == 1 { return self.gather(push, for: subscribers[0]) }
            return self.gather(push, for: ofType ?? [])
        }
        return self.gather(push, for: (ofType ?? []) + others)
    }

    private mutating func gather(_ push: consuming SocketPush, for subscribers: [Subscriber]) -> SocketPush? {
        var isClaimed = false
        for subscriber in subscribers where self.gather(copy push, for: subscriber) == nil { isClaimed = true }
        return isClaimed ? nil : push
    }

    private mutating func gather(_ push: consuming SocketPush, for subscriber: Subscriber) -> SocketPush? {
        if subscriber.isIdle {
            guard !subscriber.inbox.isOver else { return push }
            self.waiting.append(subscriber)
        }
        subscriber.gather(push)
        return nil
    }

    /// The outcome of handing over pushes.
    struct HandedOver: Equatable {
        /// The number of pushes that were dropped: older ones, or some of these.
        var dropped = 0
        /// The number of subscribers that have just fallen so far behind that reading must stop.
        var newHolds = 0
    }

    /// Delivers the gathered pushes. A subscriber that is behind does not affect the others.
    mutating func handOver() -> HandedOver {
        var result = HandedOver()
        for subscriber in self.waiting {
            let appended = subscriber.handOver()
            result.dropped += appended.dropped
            if appended.holds { result.newHolds += 1 }
        }
        self.waiting.removeAll(keepingCapacity: true)
        return result
    }

    /// Ends all subscriptions.
    mutating func finish() {
        for subscriber in self.subscribers.values.joined() { subscriber.inbox.finish() }
        self.subscribers = [:]
    }
}
