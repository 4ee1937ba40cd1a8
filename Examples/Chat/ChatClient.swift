// SPDX-License-Identifier: Apache-2.0
import HHSocketRPC

/// A person in the room: sends the lines that they type, and receives those of others.
struct ChatClient: Sendable {
    let author: String
    /// A `Chat_Chat.MockClient` in the tests of an app.
    let chat: any Chat_Chat.ClientProtocol

    /// Prints earlier and new lines.
    func listen() async throws {
        let notes = self.chat.pushes(Chat_Note.self)
        for note in try await self.chat.recall(Google_Protobuf_Empty()).notes { self.show(note) }
        for await note in notes { self.show(note) }
    }

    /// Says a line.
    func say(_ line: String) async throws {
        var message = Chat_Message()
        message.author = self.author
        message.text = line
        let receipt = try await self.chat.send(message)
        tell("(sent as \(receipt.number))")
    }

    /// Shares whether this person is typing, and prints when others are, as long as the connection lasts.
    func share(_ typing: AsyncStream<Bool>) async throws(SocketError) {
        var options = CallOptions()
        options.waitsForConnectivity = true
        let stream = try await self.chat.compose(options: options)
        let telling = Task {
            for await isTyping in typing {
                var message = Chat_Typing()
                message.author = self.author
                message.isTyping = isTyping
                try await stream.send(message)
            }
            stream.finish()
        }
        defer { telling.cancel() }
        for try await other in stream where other.isTyping { tell("(\(other.author) is typing)") }
    }

    private func show(_ note: Chat_Note) {
        tell("\(note.number) \(note.message.author): \(note.message.text)")
    }
}
