/// Who wants which pushes. Lives on the socket thread.
struct PushRouter {
    typealias Continuation = AsyncStream<SocketPush>.Continuation

    private struct Subscription {
        var id: Int
        /// Nil wants all types.
        var type: UInt32?
        var continuation: Continuation
    }

    private var subscriptions: [Subscription] = []

    mutating func add(id: Int, type: UInt32?, _ continuation: Continuation) {
        self.subscriptions.append(Subscription(id: id, type: type, continuation: continuation))
    }

    mutating func remove(id: Int) {
        self.subscriptions.removeAll { $0.id == id }
    }

    /// Hands the push to everyone who wants it. A slow reader loses pushes, and nobody else does.
    ///
    /// - Returns: Whether anyone wanted it, and how many lost an older or this very push for it.
    func route(_ push: SocketPush) -> (isClaimed: Bool, dropped: Int) {
        var isClaimed = false
        var dropped = 0
        for subscription in self.subscriptions where subscription.type == nil || subscription.type == push.type {
            isClaimed = true
            if case .dropped = subscription.continuation.yield(push) { dropped += 1 }
        }
        return (isClaimed, dropped)
    }

    mutating func finish() {
        for subscription in self.subscriptions { subscription.continuation.finish() }
        self.subscriptions = []
    }
}
