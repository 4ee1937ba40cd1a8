// SPDX-License-Identifier: Apache-2.0
import Foundation
import HHSocketServer

/// The room: keeps the last lines, and sends each line to all clients.
actor ChatServer: Chat_Chat.ServiceProtocol {
    private var notes: [Chat_Note] = []
    private var server: SocketServer?
    /// The clients that are notified of typing.
    private var listeners: [Int: AsyncStream<Chat_Typing>.Continuation] = [:]
    private var lastListener = 0

    /// Opens the room and returns its address, with the port that the system chose if the listener's is 0.
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

    func compose(
        _ requests: RequestMessages<Chat_Typing>,
        to responses: MessageWriter<Chat_Typing>,
        context: ServerContext
    ) async throws {
        // A client that does not read misses the oldest, and delays no other.
        let (heard, sink) = AsyncStream.makeStream(of: Chat_Typing.self, bufferingPolicy: .bufferingNewest(16))
        self.lastListener += 1
        let number = self.lastListener
        self.listeners[number] = sink
        var last = Chat_Typing()
        defer {
            self.listeners[number] = nil
            // A client that has left is not typing.
            last.isTyping = false
            if !last.author.isEmpty { self.tell(last, from: number) }
        }
        try await withThrowingTaskGroup(of: Void.self) { group in
            group.addTask { for await typing in heard { try await responses.send(typing) } }
            for try await typing in requests {
                last = typing
                self.tell(typing, from: number)
            }
            sink.finish()
            try await group.waitForAll()
        }
    }

    private func tell(_ typing: Chat_Typing, from number: Int) {
        for (other, sink) in self.listeners where other != number { sink.yield(typing) }
    }
}
