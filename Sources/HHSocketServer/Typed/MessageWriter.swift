// SPDX-License-Identifier: Apache-2.0
import HHSocketLink
import NIOConcurrencyHelpers
public import NIOCore

/// Sends the messages of a stream to its client.
public struct MessageWriter<Message: MessageBody>: Sendable {
    @usableFromInline
    enum Destination: Sendable {
        case stream(ServerStream)
        case collection(CollectedMessages<Message>)
    }

    @usableFromInline let destination: Destination

    /// Creates the writer of a stream.
    @inlinable
    init(_ stream: ServerStream) {
        self.destination = .stream(stream)
    }

    init(_ collection: CollectedMessages<Message>) {
        self.destination = .collection(collection)
    }

    /// Sends a message, and returns when the next one may be sent.
    ///
    /// - Throws: The errors of ``ServerStream/send(_:)``, and those of the message's writer:
    ///   ``/HHSocketMessage/MessageError`` for generated ones.
    @inlinable  // So that the compiler can specialise the code for the messages in use.
    public nonisolated(nonsending) func send(_ message: Message) async throws {
        switch self.destination {
        case .stream(let stream): try await stream.send(ByteBuffer(message: message))
        case .collection(let collection): collection.append(message)
        }
    }

    /// Creates a writer that keeps the messages, for tests of services without a socket.
    ///
    /// ```swift
    /// let (writer, sent) = MessageWriter<Kv_Entry>.collecting()
    /// try await service.scan(range, to: writer, context: context)
    /// #expect(sent.messages.count == 3)
    /// ```
    public static func collecting() -> (writer: MessageWriter, sent: CollectedMessages<Message>) {
        let collection = CollectedMessages<Message>()
        return (MessageWriter(collection), collection)
    }
}

/// The messages that were sent to a writer of ``MessageWriter/collecting()``.
public final class CollectedMessages<Message: Sendable>: Sendable {
    private let state = NIOLockedValueBox<[Message]>([])

    init() {}

    /// All of them so far, in order.
    public var messages: [Message] { self.state.withLockedValue { $0 } }

    @usableFromInline
    func append(_ message: Message) { self.state.withLockedValue { $0.append(message) } }
}
