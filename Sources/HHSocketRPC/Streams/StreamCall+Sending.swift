// SPDX-License-Identifier: Apache-2.0
import HHSocket
import NIOCore

/// Items that are sent.
extension StreamCall {
    /// Accepts an item from its sender. Any thread.
    ///
    /// - Returns: Whether the next item may be sent only after ``awaitRoom(_:)``.
    /// - Throws: The reason why it is not sent: it is too long, or the stream or this side's items have ended.
    func put(_ body: ByteBuffer) throws(SocketError) -> Bool {
        guard self.kind.clientStreams else { throw Self.sendsNoItems }
        guard body.readableBytes <= self.maximumItemLength else { throw Self.tooLong(body, self.maximumItemLength) }
        return try self.put(body, isCompressed: nil)
    }

    private func put(_ body: ByteBuffer, isCompressed: Bool?) throws(SocketError) -> Bool {
        switch self.port.put(body, isCompressed: isCompressed, visit: self.submitVisit) {
        case .proceed: return false
        case .wait, .full: return true
        case .compress(let level):
            // On the sender's thread.
            let compressed = Envelope.deflate(body, level: level)
            return try self.put(compressed ?? body, isCompressed: compressed != nil)
        case .finished: throw Self.isFinished
        case .over: throw self.end.map { self.noItemIsSent(after: $0) } ?? CallErrors.released
        }
    }

    /// Registers a sender that waits until the next item may be sent.
    ///
    /// - Returns: Whether there is something to wait for.
    func awaitRoom(_ sender: StreamPort.Sender) -> Bool { self.port.awaitRoom(sender) }

    /// Ends this side's items. Any thread.
    func finish() {
        if self.kind.clientStreams { self.port.finish(visit: self.submitVisit) }
    }

    // MARK: Errors

    private static var isFinished: SocketError {
        SocketError(.invalidArgument, message: "no item may be sent after finish()")
    }

    private static var sendsNoItems: SocketError {
        SocketError(
            .invalidArgument,
            message: "the client sends no items on a stream of this kind: its one message is the body of the request"
        )
    }

    private static func tooLong(_ body: ByteBuffer, _ limit: Int) -> SocketError {
        SocketError(
            .frameTooLarge,
            message: """
                an item of \(body.readableBytes) bytes is over the limit of \(limit); raise maximumPayloadLength on both \
                sides or send less. It was not sent, and the stream continues
                """
        )
    }
}
