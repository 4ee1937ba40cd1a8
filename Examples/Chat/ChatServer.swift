import HHSocketServer

/// The room: remembers what was said last, and tells everybody what is said.
actor ChatServer: Chat_Chat.ServiceProtocol {
    private static let remembered = 100

    private var notes: [Chat_Note] = []
    private var count: UInt64 = 0
    private let tell: @Sendable (Chat_Note) async throws -> Void

    init(tell: @escaping @Sendable (Chat_Note) async throws -> Void) {
        self.tell = tell
    }

    func send(_ request: Chat_Message, context: ServerContext) async throws -> Chat_Receipt {
        guard (1...1_000).contains(request.text.count) else { throw StatusError(.illegalLength) }
        self.count += 1
        var note = Chat_Note()
        note.number = self.count
        note.message = request
        self.notes = self.notes.suffix(Self.remembered - 1) + [note]
        try await self.tell(note)

        var receipt = Chat_Receipt()
        receipt.number = note.number
        receipt.at = .now
        return receipt
    }

    func recall(_ request: Google_Protobuf_Empty, context: ServerContext) async throws -> Chat_History {
        var history = Chat_History()
        history.notes = self.notes
        return history
    }
}
