// SPDX-License-Identifier: Apache-2.0
import NIOCore

@testable import HHSocket
@testable import HHSocketLink

/// A message of the client, and its outcome.
struct SentMessage {
    enum Style: Sendable {
        /// Sent by the method that waits.
        case awaited
        case completion
        /// The outcome is not reported.
        case forgotten
    }

    enum Expectation {
        case accepted
        case refused
        /// No connection will be made.
        case closed
        case unknown
    }

    enum Outcome {
        case success
        case failure(SocketError)
    }

    /// The payload of heartbeats that are messages.
    static let beat = ByteBuffer(string: "heart")

    /// The length of the number at the front of the payload.
    static let prefixLength = 6

    private static let filler: ByteBuffer = {
        let letters: [UInt8] = (0..<300_000).map { (index: Int) -> UInt8 in
            let letter = (index * 7 + index / 26) % 26
            return 97 + UInt8(letter)
        }
        return ByteBuffer(bytes: letters)
    }()

    var message: WebSocketMessage
    var style: Style
    var expectation: Expectation
    /// The step in which it was sent.
    var step: Int
    var outcome: Outcome?
    /// Whether its sender was cancelled.
    var isCancelled = false
    /// The connection on which its first byte was sent.
    var peer: SimulatedPeer?
    /// The offset after its last byte.
    var end: Int?

    var length: Int { self.message.payload.readableBytes }
    /// Whether no byte of it was sent yet, but still may be.
    var isWaiting: Bool { self.outcome == nil && self.peer == nil }

    /// - Parameter length: At least ``prefixLength``.
    static func message(_ number: Int, isText: Bool, length: Int) -> WebSocketMessage {
        WebSocketMessage(isText ? .text : .binary, self.payload(number, length))
    }

    static func payload(_ number: Int, _ length: Int) -> ByteBuffer {
        let digits = "\(number)"
        let zeros = String(repeating: "0", count: max(0, self.prefixLength - digits.count))
        var payload = ByteBuffer(string: zeros + digits)
        let missing = max(0, length - payload.readableBytes)
        if let slice = self.filler.getSlice(at: number % 97, length: min(missing, 299_000)) {
            payload.writeImmutableBuffer(slice)
        }
        return payload
    }
}
