// SPDX-License-Identifier: Apache-2.0
import ArgumentParser
import HHSocket
import HHSocketServer
import NIOCore

/// The requests that `hhsocket serve` answers.
enum BuiltIn {
    /// Answered with its own payload.
    static let echo: UInt32 = 1000
    /// Sleeps for the payload's decimal milliseconds, then answers with the payload.
    static let sleep: UInt32 = 1001
    /// Answered with the status that the payload names in decimal, and no payload.
    static let status: UInt32 = 1002
    /// Answered with the payload's SHA-256 in hex.
    static let sha256: UInt32 = 1003

    /// Answered with the serial and the request's deadline, key and metadata, one per line; and with metadata.
    static let context: UInt32 = 1005

    /// An hour. A longer sleep is shortened to it, so that no request stays in memory forever.
    static let longestSleep = 3_600_000

    /// The way in which type 1000 is answered.
    enum EchoHandler: String, ExpressibleByArgument, CaseIterable {
        /// Immediately, on the connection's thread.
        case synchronous
        /// In a task on the connection's thread.
        case connection
        /// In a task on Swift's thread pool.
        case global
    }

    /// Returns the router of a server, and the types that it omits because the format reserves them.
    static func router(
        for format: WireFormat,
        echo echoHandler: EchoHandler = .synchronous
    ) -> (router: Router, omitted: [UInt32]) {
        var router = Router()
        var omitted: [UInt32] = []
        func add(_ type: UInt32, _ handle: (inout Router) -> Void) {
            if format.isCallType(type) { handle(&router) } else { omitted.append(type) }
        }
        add(self.echo) { router in
            switch echoHandler {
            case .synchronous: router.handleSynchronously(self.echo) { request, _ in request.body }
            case .connection: router.handle(self.echo, on: .connection) { request, _ in request.body }
            case .global: router.handle(self.echo, on: .global) { request, _ in request.body }
            }
        }
        add(self.sleep) { router in
            router.handle(self.sleep) { request, _ in
                guard let milliseconds = Self.decimal(request.body, limit: Self.longestSleep) else {
                    throw StatusError(.illegalFormat)
                }
                try await Task.sleep(for: .milliseconds(milliseconds))
                return request.body
            }
        }
        add(self.status) { router in
            router.handleSynchronously(self.status) { request, _ in
                // One more than fits, so that a number that is too large is not read as the largest.
                guard let number = Self.decimal(request.body, limit: Int(UInt32.max) + 1),
                    let status = UInt32(exactly: number)
                else { throw StatusError(.illegalFormat) }
                throw StatusError(Status(rawValue: status))
            }
        }
        // In a task: hashing the largest payload takes longer than an event loop may be blocked.
        add(self.sha256) { router in
            router.handle(self.sha256) { request, _ in ByteBuffer(string: Self.sha256Hex(of: request.body)) }
        }
        add(Hhsocket_Bench.Methods.echo.type) { router in
            router.handleSynchronously(Hhsocket_Bench.Methods.echo) { note, _ in note }
        }
        add(self.context) { router in
            router.handleSynchronously(self.context) { request, context in
                context.answerMetadata = ["server": "hhsocket"]
                return ByteBuffer(string: Self.description(of: request, context))
            }
        }
        for type in [self.streamOfItems, self.digest, self.echoStream, self.countOfItems] {
            add(type) { self.addStream(type, to: &$0) }
        }
        return (router, omitted)
    }

    /// Describes a request. The serial shows a caller whether the answer was kept from an earlier request.
    private static func description(of request: ServerRequest, _ context: ServerContext) -> String {
        var lines = ["serial: \(request.serial)"]
        if let deadline = context.deadline {
            lines.append("deadline: \((deadline - .now()).nanoseconds / 1_000_000) ms")
        }
        if let key = context.idempotencyKey { lines.append("idempotency key: \(key.escaped)") }
        lines += context.metadata.sorted { $0.key < $1.key }.map { "metadata \($0.key): \($0.value.escaped)" }
        return lines.map { $0 + "\n" }.joined()
    }

    static func sha256Hex(of bytes: ByteBuffer) -> String {
        bytes.withUnsafeReadableBytes { SHA256.hash(of: $0) }.hexadecimal
    }

    /// Returns the number in decimal digits, `limit` at most; nil if `bytes` are anything else.
    static func decimal(_ bytes: ByteBuffer, limit: Int) -> Int? {
        guard bytes.readableBytes > 0 else { return nil }
        var number = 0
        for byte in bytes.readableBytesView {
            guard (UInt8(ascii: "0")...UInt8(ascii: "9")).contains(byte) else { return nil }
            number = min(number * 10 + Int(byte - UInt8(ascii: "0")), limit)
        }
        return number
    }
}
