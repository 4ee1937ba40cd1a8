import Foundation
import HHSocketServer

/// The room: remembers what was said last, and tells everybody what is said.
actor ChatServer: Chat_Chat.ServiceProtocol {
    private var notes: [Chat_Note] = []
    private var server: SocketServer?

    /// Opens the room and returns its address, with the port that the system chose where the listener's is 0.
    func open(at listener: ServerListener) async throws -> Endpoint? {
        var router = Router()
        // Methods that wait for this actor and compute little need no other thread.
        router.register(self, on: .connection)
        let server = SocketServer(configuration: .init(listeners: [listener]), router: router)
        try await server.start()
        self.server = server
        return server.address
    }

    func send(_ request: Chat_Message, context: ServerContext) async throws -> Chat_Receipt {
        guard (1...1_000).contains(request.text.count) else { throw StatusError(.illegalLength) }
        var note = Chat_Note()
        note.number = (self.notes.last?.number ?? 0) + 1
        note.message = request
        self.notes = self.notes.suffix(99) + [note]
        try await self.server?.push(note)

        var receipt = Chat_Receipt()
        receipt.number = note.number
        receipt.at = Google_Protobuf_Timestamp(date: Date())
        return receipt
    }

    func recall(_ request: Google_Protobuf_Empty, context: ServerContext) async throws -> Chat_History {
        var history = Chat_History()
        history.notes = self.notes
        return history
    }
}
