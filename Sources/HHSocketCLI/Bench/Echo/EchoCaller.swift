// SPDX-License-Identifier: Apache-2.0
import HHSocketRPC

/// Makes one call after the other, and checks the answers.
protocol EchoCaller: Sendable {
    /// Makes call `number` and waits for its answer.
    ///
    /// - Throws: `SocketError`, or ``EchoFailure`` if the answer is not an echo.
    nonisolated(nonsending) mutating func call(_ number: UInt32, on client: SocketClient) async throws
}

/// A caller with plain bodies.
struct BodyCaller: EchoCaller {
    private let body: EchoBody
    private var requests: RequestPair

    init(_ body: EchoBody) {
        self.body = body
        self.requests = RequestPair(body)
    }

    nonisolated(nonsending) mutating func call(_ number: UInt32, on client: SocketClient) async throws {
        let response = try await client.data(for: self.requests.next(number))
        guard self.body.isEchoed(by: response.body, number: number) else {
            throw EchoFailure(self.body.reason(about: response.body, number: number))
        }
    }
}

/// A caller with messages, through the generated client.
struct MessageCaller: EchoCaller {
    /// The lengths of messages, in bytes.
    static let lengths = 16...1 << 20

    private var note: Hhsocket_BenchNote

    /// - Parameter length: The length of the message, in bytes. It is one byte shorter where no message has that
    ///   length, because the length of its text takes another byte.
    init(length: Int) {
        self.note = Hhsocket_BenchNote()
        self.note.number = 1
        if length >= 40 {
            self.note.author = "hhsocket"
            self.note.at = 1_700_000_000_000
            self.note.urgent = true
        }
        let others = Self.length(of: self.note)
        self.note.text = String(repeating: "t", count: max(length - others, 0))
        self.note.text.removeLast(min(self.note.text.count, max(Self.length(of: self.note) - length, 0)))
    }

    private static func length(of note: Hhsocket_BenchNote) -> Int {
        // It has no required fields and is not deep, so it can be encoded.
        (try? note.serializedBytes().count) ?? 0
    }

    nonisolated(nonsending) mutating func call(_ number: UInt32, on client: SocketClient) async throws {
        self.note.number = number
        let answer = try await Hhsocket_Bench.Client(client).echo(self.note)
        guard answer == self.note else {
            throw EchoFailure("wrong answer to call \(number): \(answer), where \(self.note) was sent")
        }
    }
}
