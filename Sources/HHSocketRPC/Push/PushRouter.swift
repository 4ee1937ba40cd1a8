/// Who wants which pushes. Lives on the socket thread.
///
/// Pushes that come together are gathered for each subscriber, and handed over at once.
struct PushRouter {
    private final class Subscriber {
        let mailbox: PushMailbox
        /// What has come and is not handed over yet.
        var pushes: [SocketPush] = []

        init(_ mailbox: PushMailbox) {
            self.mailbox = mailbox
        }
    }

    /// By type; nil wants all.
    private var subscribers: [UInt32?: [Subscriber]] = [:]
    /// Those for whom something has come.
    private var waiting: [Subscriber] = []

    mutating func add(_ mailbox: PushMailbox, _ type: UInt32?) {
        self.subscribers[type, default: []].append(Subscriber(mailbox))
    }

    mutating func remove(_ mailbox: PushMailbox, _ type: UInt32?) {
        self.subscribers[type]?.removeAll { $0.mailbox === mailbox }
        if self.subscribers[type]?.isEmpty == true { self.subscribers[type] = nil }
    }

    /// Gathers the push for everyone who wants it. Returns whether anyone does.
    mutating func route(_ push: SocketPush) -> Bool {
        let isClaimed = self.gather(push, forThoseOf: push.type)
        return self.gather(push, forThoseOf: nil) || isClaimed
    }

    private mutating func gather(_ push: SocketPush, forThoseOf type: UInt32?) -> Bool {
        guard let subscribers = self.subscribers[type] else { return false }
        var isClaimed = false
        for subscriber in subscribers {
            if subscriber.pushes.isEmpty {
                guard !subscriber.mailbox.isOver else { continue }
                self.waiting.append(subscriber)
            }
            subscriber.pushes.append(push)
            isClaimed = true
        }
        return isClaimed
    }

    /// What became of pushes that were handed over.
    struct HandedOver: Equatable {
        /// How many were lost, older ones or some of these.
        var dropped = 0
        /// How many subscribers have just fallen so far behind that nothing more should be read.
        var newHolds = 0
    }

    /// Hands over what has come. What becomes of it with one subscriber harms nobody else.
    mutating func handOver() -> HandedOver {
        var result = HandedOver()
        for subscriber in self.waiting {
            let appended = subscriber.mailbox.append(&subscriber.pushes)
            result.dropped += appended.dropped
            if appended.holdsReading { result.newHolds += 1 }
        }
        self.waiting.removeAll(keepingCapacity: true)
        return result
    }

    /// No push comes any more.
    mutating func finish() {
        for subscriber in self.subscribers.values.joined() { subscriber.mailbox.finish() }
        self.subscribers = [:]
    }
}
