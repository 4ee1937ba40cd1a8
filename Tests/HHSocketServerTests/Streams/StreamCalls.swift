// SPDX-License-Identifier: Apache-2.0
import HHSocket
import HHSocketMessage
import HHSocketTesting
import NIOCore
import TestSupport
import Testing

@testable import HHSocketServer

/// The types of the streams and calls of these tests.
enum StreamCall {
    static let count: UInt32 = 200
    static let gather: UInt32 = 201
    static let echo: UInt32 = 202
    static let hang: UInt32 = 203
    static let plain: UInt32 = 204
    static let endEarly: UInt32 = 205
    static let fail: UInt32 = 206
    static let large: UInt32 = 207
    static let read: UInt32 = 208
    static let flood: UInt32 = 209
    static let refuse: UInt32 = 210
}

private struct Oops: Error {}

/// The events in handlers.
struct StreamNotes: Sendable {
    /// The lines of handlers, in order.
    let lines = Watched<[String]>([])
    let gate = Gate()

    func note(_ line: String) { self.lines.withLockedValue { $0.append(line) } }

    func expect(_ line: String, fileID: String = #fileID, line number: Int = #line) async throws {
        try await self.lines.wait("\"\(line)\"", fileID: fileID, line: number) { $0.contains(line) }
    }
}

/// A router with all of ``StreamCall``.
///
/// - Parameter layer: A layer around all handlers.
func makeStreamRouter(
    _ notes: StreamNotes = StreamNotes(),
    on executor: HandlerExecutor? = nil,
    layer: (any RouterLayer)? = nil
) -> Router {
    var router = Router()
    if let layer { router.use(layer) }
    router.stream(StreamCall.count, kind: .serverStreaming, on: executor) { stream, context in
        let count = Int(String(buffer: stream.request.body)) ?? 0
        for number in 0..<count {
            try await stream.send(ByteBuffer(string: "\(number)"))
            notes.note("sent \(number)")
        }
        context.answerMetadata = ["sent": "\(count)"]
        return ByteBuffer(string: "this is not sent")
    }
    router.stream(StreamCall.gather, kind: .clientStreaming, on: executor) { stream, _ in
        var all = ""
        for try await item in stream.items { all += String(buffer: item) + ";" }
        return ByteBuffer(string: all)
    }
    router.stream(StreamCall.echo, kind: .bidirectional, on: executor) { stream, _ in
        for try await item in stream.items { try await stream.send(item) }
        return ByteBuffer()
    }
    router.stream(StreamCall.hang, kind: .bidirectional, on: executor) { stream, _ in
        notes.note("hangs \(stream.request.serial)")
        do {
            try await notes.gate.wait()
        } catch {
            notes.note("cancelled \(stream.request.serial)")
            throw error
        }
        return ByteBuffer()
    }
    router.handleSynchronously(StreamCall.plain) { request, _ in request.body }
    router.stream(StreamCall.endEarly, kind: .bidirectional, on: executor) { stream, _ in
        for try await item in stream.items {
            try await stream.send(item)
            break
        }
        return ByteBuffer()
    }
    router.stream(StreamCall.fail, kind: .bidirectional, on: executor) { stream, context in
        for try await item in stream.items {
            context.answerMetadata = ["why": "because"]
            switch String(buffer: item) {
            case "status": throw StatusError(.noPermission, body: ByteBuffer(string: "no"))
            case "mapped": throw CancellationError()
            default: throw Oops()
            }
        }
        return ByteBuffer()
    }
    router.stream(StreamCall.read, kind: .bidirectional, on: executor) { stream, _ in
        let serial = stream.request.serial
        notes.note("reads \(serial)")
        do throws(StatusError) {
            for try await item in stream.items { notes.note("item \(String(buffer: item))") }
        } catch {
            notes.note("failed \(serial) \(error.status.rawValue)")
            throw error
        }
        notes.note("read \(serial)")
        return ByteBuffer()
    }
    router.stream(StreamCall.flood, kind: .serverStreaming, on: executor) { stream, _ in
        let item = stream.request.body
        notes.note("floods \(stream.request.serial)")
        do {
            while true { try await stream.send(item) }
        } catch {
            notes.note("stopped \(stream.request.serial)")
            throw error
        }
    }
    router.stream(StreamCall.refuse, kind: .clientStreaming, on: executor) { stream, _ in
        for try await _ in stream.items {}
        throw StatusError(.noPermission, body: ByteBuffer(string: "no"))
    }
    router.handleSynchronously(StreamCall.large) { request, _ in
        ByteBuffer(repeating: 120, count: Int(String(buffer: request.body)) ?? 0)
    }
    return router
}

extension SocketServer.Configuration {
    /// A configuration that differs from the default only in this policy on streams.
    static func streaming(_ change: (inout StreamPolicy) -> Void) -> Self {
        var (configuration, policy) = (Self(), StreamPolicy())
        change(&policy)
        configuration.streams = policy
        return configuration
    }
}

/// Runs `body` with a server of streams, and a client that has exchanged hello.
func withStreams(
    _ configuration: SocketServer.Configuration = .init(),
    _ notes: StreamNotes = StreamNotes(),
    features: [String] = ["metadata", "streams"],
    window: UInt32 = 0,
    connectionWindow: UInt32 = 0,
    on executor: HandlerExecutor? = nil,
    _ body: (StreamClient, SocketServer) async throws -> Void
) async throws {
    try await withServer(configuration, makeStreamRouter(notes, on: executor)) { server in
        let client = try await StreamClient(
            server,
            features: features,
            window: window,
            connectionWindow: connectionWindow
        )
        try await body(client, server)
    }
}

extension StreamClient {
    /// Expects the answer to a call as the next frame: everything sent before has been handled.
    func expectService(_ serial: UInt32 = 99, sourceLocation: SourceLocation = #_sourceLocation) async throws {
        await self.send(StreamCall.plain, serial, ByteBuffer(string: "served"))
        try await self.expectEnd(serial, .ok, "served", sourceLocation: sourceLocation)
    }
}
