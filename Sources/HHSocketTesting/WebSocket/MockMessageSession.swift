// SPDX-License-Identifier: Apache-2.0
import HHSocket
import NIOCore

/// One connection of a ``MockWebSocketServer``.
final class MockMessageSession: MockSession<MessageWire> {
    /// The length from which on messages are compressed; nil if that was not agreed on.
    private var compressedLength: Int?

    override func isReady(_ agreement: OpeningAgreement?) {
        if agreement?.deflate != nil { self.compressedLength = self.parts?.wire.compression?.minimumLength }
        super.isReady(agreement)
    }

    override func handleNext() -> Bool {
        do throws(WebSocketViolation) {
            guard let input = try self.carriage?.nextInput() else { return false }
            self.received(WebSocketContent(input))
            return true
        } catch {
            self.received(.violation("\(error)"))
            self.carriage?.close(WebSocketClose(code: error.code, reason: "\(error)"))
            return false
        }
    }

    private func received(_ content: WebSocketContent) {
        guard let parts = self.parts else { return }
        let received = Received(connection: self.number, content: content)
        parts.received.append(received)
        switch content {
        case .text(let text): self.perform(parts.reaction(to: text), for: received)
        case .binary: self.perform(parts.reaction(to: nil), for: received)
        case .ping: self.perform(parts.wire.rules.withLockedValue { $0.ping }, for: received)
        case .close: self.perform(parts.wire.rules.withLockedValue { $0.close }, for: received)
        case .pong, .violation: break
        }
    }

    // MARK: Reacting

    override func send(_ output: MessageWire.Output, _ sending: Sending, for received: Received?) {
        guard let carriage = self.carriage, let frame = self.frame(output, for: received) else { return }
        var all = ByteBuffer()
        for frame in output.fragmentLength.map({ frame.fragmented(length: $0) }) ?? [frame] {
            all.writeImmutableBuffer(sending.flaws.cut(carriage.encode(frame)))
        }
        self.send(all.repeated(sending.copies), sending.dribble)
    }

    private func frame(_ output: MessageWire.Output, for received: Received?) -> WebSocketFrame? {
        let message: WebSocketMessage
        switch output.source {
        case .frame(let frame):
            return frame
        case .pong:
            guard case .ping(let payload)? = received?.content else { return .pong() }
            return .pong(payload)
        case .answeredClose:
            guard self.carriage?.hasClosed == false, case .close(let code, _)? = received?.content else { return nil }
            return code.map { .close(code: $0) } ?? .close()
        case .echo:
            guard let came = received?.message else { return nil }
            message = came
        case .message(let given):
            message = given
        }
        let frame = WebSocketFrame(message.kind == .text ? .text : .binary, message.payload)
        let isLong = self.compressedLength.map { message.payload.readableBytes >= $0 } ?? false
        return output.isCompressed || isLong ? frame.compressed() : frame
    }
}
