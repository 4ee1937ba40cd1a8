// SPDX-License-Identifier: Apache-2.0
import HHSocket
import NIOConcurrencyHelpers

/// The openings of a mock server's WebSockets, the received requests and their answers, and the form of the messages.
final class MockOpenings: Sendable {
    private struct Answers {
        var general = MockOpening.accept
        var byNumber: [Int: MockOpening] = [:]
    }

    /// The path of the WebSockets; nil for any.
    let path: String?
    let rules: OpeningRules
    /// Whether the first subprotocol that a client offers is selected, if the rules select none.
    let takesAnySubprotocol: Bool
    /// Whether bytes arrive in messages that are kept whole; not in `.stream`, and then text is a violation.
    let mode: WebSocketDecoder.Mode
    /// Whether ``MockCarriage/carry(_:)`` makes text messages.
    let sendsText: Bool
    let received = EventLog<OpeningWire.Received>()
    private let answers = NIOLockedValueBox(Answers())

    /// - Throws: ``/HHSocket/SocketError`` with code `invalidArgument` for subprotocols that are none.
    init(
        _ path: String?,
        _ subprotocols: [String],
        takesAnySubprotocol: Bool = false,
        compression: WebSocketCompression? = nil,
        mode: WebSocketDecoder.Mode = .stream,
        sendsText: Bool = false
    ) throws(SocketError) {
        self.path = path
        self.mode = mode
        self.sendsText = sendsText
        self.takesAnySubprotocol = takesAnySubprotocol
        do throws(OpeningError) {
            self.rules = try OpeningRules(path: path, subprotocols: subprotocols, deflate: compression?.policy)
        } catch {
            throw .invalid("\(error)")
        }
    }

    /// - Parameter number: The number of the connection; nil for those without an answer of their own.
    func set(_ answer: MockOpening, number: Int? = nil) {
        self.answers.withLockedValue {
            if let number { $0.byNumber[number] = answer } else { $0.general = answer }
        }
    }

    func answer(number: Int) -> MockOpening {
        self.answers.withLockedValue { $0.byNumber[number] ?? $0.general }
    }

    func received(number: Int, within time: Duration) async throws -> OpeningWire.Received {
        try await self.received.wait(1, within: time, "the opening of connection \(number)") {
            $0.connection == number
        }[0]
    }
}
