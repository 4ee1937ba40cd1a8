/// Who wants which pushes. Lives on the socket thread.
struct PushRouter {
    /// By type; nil wants all.
    private var mailboxes: [UInt32?: [PushMailbox]] = [:]

    mutating func add(_ mailbox: PushMailbox, _ type: UInt32?) {
        self.mailboxes[type, default: []].append(mailbox)
    }

    mutating func remove(_ mailbox: PushMailbox, _ type: UInt32?) {
        self.mailboxes[type]?.removeAll { $0 === mailbox }
        if self.mailboxes[type]?.isEmpty == true { self.mailboxes[type] = nil }
    }

    /// What became of a push.
    struct Routed: Equatable {
        /// Whether anyone wanted it.
        var isClaimed = false
        /// How many lost an older or this very push for it.
        var dropped = 0
        /// How many have just fallen so far behind that nothing more should be read.
        var newHolds = 0
    }

    /// Hands the push to everyone who wants it. What becomes of it there harms nobody else.
    func route(_ push: SocketPush) -> Routed {
        var routed = Routed()
        self.hand(push, toThoseOf: push.type, &routed)
        self.hand(push, toThoseOf: nil, &routed)
        return routed
    }

    private func hand(_ push: SocketPush, toThoseOf type: UInt32?, _ routed: inout Routed) {
        for mailbox in self.mailboxes[type] ?? [] {
            guard let appended = mailbox.append(push) else { continue }
            routed.isClaimed = true
            switch appended {
            case .kept: break
            case .dropped: routed.dropped += 1
            case .holdsReading: routed.newHolds += 1
            }
        }
    }

    mutating func finish() {
        for mailbox in self.mailboxes.values.joined() { mailbox.finish() }
        self.mailboxes = [:]
    }
}
