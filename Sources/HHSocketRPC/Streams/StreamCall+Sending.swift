// SPDX-License-Identifier: Apache-2.0
import HHSocket
import NIOCore

/// Items that are sent.
extension StreamCall {
    /// The outcome of sending an item.
    enum Put: Sendable {
        /// The next may be sent.
        case goOn
        /// The next item may be sent after ``awaitRoom(_:)``.
        case wait
        /// The stream, or this side's items, have ended.
        case refused(SocketError)
    }

    /// Accepts an item from its sender. Any thread.
    func put(_ body: ByteBuffer) -> Put {
        guard self.kind.clientStreams else { return .refused(Self.sendsNoItems) }
        guard body.readableBytes <= self.maximumItemLength else {
            return .refused(Self.tooLong(body, self.maximumItemLength))
        }
        return self.put(body, isCompressed: nil)
    }

    private func put(_ body: ByteBuffer, isCompressed: Bool?) -> Put {
        switch self.port.put(body, isCompressed: isCompressed, visit: self.submitVisit) {
        case .goOn: return .goOn
        case .wait, .full: return .wait
        case .compress(let level):
            // On the sender's thread.
            let compressed = Envelope.deflate(body, level: level)
            return self.put(compressed ?? body, isCompressed: compressed != nil)
        case .finished: return .refused(Self.isFinished)
        case .over: return .refused(self.end.map { self.noItemIsSent(after: $0) } ?? CallErrors.released)
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

    // MARK: Socket thread

    /// Passes the items that the application has taken, and those that it sends, to the machine.
    ///
    /// - Returns: The number of items that were sent, and whether no more follow.
    func settle(_ id: StreamID, _ machine: inout ClientStreams, in turn: inout Turn) -> StreamPort.Settled {
        // Nothing is sent before the opening was, so that the stream can still be opened on another connection.
        self.port.settle(id, &machine, sends: self.flight.hasLeft, now: turn.now) { sender in
            switch sender {
            case .task(let waiter): turn.resume(waiter)
            case .handler(let handler): self.callBack { handler(nil) }
            }
        }
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
