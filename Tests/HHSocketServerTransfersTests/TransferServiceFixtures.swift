// SPDX-License-Identifier: Apache-2.0
import HHSocket
import HHSocketMessage
import HHSocketRPC
import HHSocketServer
import HHSocketTesting
import HHSocketTransferValues
import NIOCore
import TestSupport
import Testing

@testable import HHSocketServerTransfers

/// Runs `body` with a server of transfers, its store, and a client that sends messages of transfers.
func withTransfers(
    _ configuration: SocketServer.Configuration = .init(),
    limits: TransferLimits = TransferLimits(),
    types: TransferTypes = TransferTypes(),
    on executor: HandlerExecutor? = nil,
    store: (any TransferStore)? = nil,
    busyInterval: Duration? = nil,
    authorize: @escaping TransferService.Authorization = { _, _ in },
    _ body: (TransferCalls, SocketServer, MemoryFileSystem) async throws -> Void
) async throws {
    let files = MemoryFileSystem()
    let store = try store ?? FolderTransferStore(path: "/store", limits: limits, files)
    var router = Router()
    var service = TransferService(store: store, types: types, authorize: authorize)
    if let busyInterval { service.busyInterval = busyInterval }
    router.register(service, on: executor)
    router.handleSynchronously(100) { request, context in
        context.session.authenticate(as: String(buffer: request.body))
        return ByteBuffer()
    }
    try await withServer(configuration, router) { server in
        let calls = TransferCalls(try #require(server.address), types)
        try await body(calls, server, files)
        await calls.client.close()
    }
}

/// A client's calls to a service of transfers, each by itself.
struct TransferCalls: Sendable {
    let client: SocketClient
    let types: TransferTypes

    init(_ address: Endpoint, _ types: TransferTypes = TransferTypes()) {
        self.types = types
        self.client = SocketClient.connecting(to: address) { configuration in
            configuration.streams = StreamPolicy()
        }
    }

    // MARK: Put

    /// A put in progress.
    struct Put: Sendable {
        let stream: SocketStream

        func send(_ bytes: [UInt8], at offset: Int) async throws {
            try await self.stream.send(TransferPart(offset: UInt64(offset), bytes: ByteBuffer(bytes: bytes)).item)
        }

        /// Returns the reports up to one that satisfies `isLast`, or to the end.
        func reports(
            until isLast: @escaping @Sendable (Hhsocket_PutReport) -> Bool = { _ in false }
        ) async throws -> [Hhsocket_PutReport] {
            try await withDeadline("reports of a put") {
                var reports: [Hhsocket_PutReport] = []
                for try await item in self.stream.items {
                    let report: Hhsocket_PutReport = try item.message()
                    reports.append(report)
                    if isLast(report) { break }
                }
                return reports
            }
        }

        func nextReport() async throws -> Hhsocket_PutReport {
            try #require(try await self.reports { _ in true }.last)
        }

        /// Waits for the end of the put, and returns its failure and status.
        func failure() async throws -> (code: Hhsocket_TransferCode?, error: SocketError.Code?) {
            let stream = self.stream
            return try await withDeadline("the end of a put") {
                var code: Hhsocket_TransferCode?
                do throws(SocketError) {
                    for try await item in stream.items {
                        if let report: Hhsocket_PutReport = try? item.message(), report.hasFailure {
                            code = report.failure.code
                        }
                    }
                    return (code, nil)
                } catch {
                    return (code, error.code)
                }
            }
        }
    }

    func begin(
        _ id: String,
        _ bytes: [UInt8],
        writer: UInt64 = 1
    ) async throws -> Put {
        var begin = Hhsocket_PutBegin()
        begin.id = id
        begin.file = TransferFile(of: bytes).message
        begin.writer = writer
        var request = Hhsocket_PutRequest()
        request.kind = .begin(begin)
        return try await self.open(with: ByteBuffer(message: request))
    }

    func open(with item: ByteBuffer) async throws -> Put {
        let stream = try await self.client.stream(for: SocketRequest(type: self.types.put))
        try await stream.send(item)
        return Put(stream: stream)
    }

    /// Sends a whole file. Returns the reports.
    @discardableResult
    func put(
        _ id: String,
        _ bytes: [UInt8],
        writer: UInt64 = 1,
        pieceLength: Int = 64 << 10
    ) async throws -> [Hhsocket_PutReport] {
        let put = try await self.begin(id, bytes, writer: writer)
        let first = try await put.nextReport()
        async let rest = first.complete ? [] : put.reports()
        if !first.complete {
            for start in stride(from: Int(first.offset), to: bytes.count, by: pieceLength) {
                try await put.send(Array(bytes[start..<min(start + pieceLength, bytes.count)]), at: start)
            }
        }
        put.stream.finish()
        let reports = try await [first] + rest
        _ = try await put.stream.response
        return reports
    }

    // MARK: Get

    struct Got: Sendable {
        var begin: Hhsocket_GetBegin?
        var bytes: [UInt8] = []
        var failure: Hhsocket_TransferCode?
        var error: SocketError.Code?
    }

    func get(
        _ id: String,
        offset: UInt64 = 0,
        begun: TransferFile? = nil,
        onSign: @escaping @Sendable () -> Void = { Issue.record("an unknown item") }
    ) async throws -> Got {
        var request = Hhsocket_GetRequest()
        request.id = id
        request.offset = offset
        if let begun { request.begun = begun.message }
        let body = try ByteBuffer(message: request)
        return try await withDeadline("a get") {
            let stream = try await self.client.stream(
                for: SocketRequest(type: self.types.get, body: body),
                kind: .serverStreaming
            )
            var got = Got()
            do throws(SocketError) {
                for try await item in stream.items {
                    if let part = TransferPart(item: item) {
                        #expect(part.offset == (got.begin?.offset ?? 0) + UInt64(got.bytes.count))
                        got.bytes += Array(buffer: part.bytes)
                    } else if let message: Hhsocket_GetItem = try? item.message() {
                        switch message.kind {
                        case .begin(let begin): got.begin = begin
                        case .failure(let failure): got.failure = failure.code
                        case nil where message.busy: onSign()
                        case .content, nil: Issue.record("an unknown item")
                        }
                    }
                }
            } catch {
                got.error = error.code
            }
            return got
        }
    }

    // MARK: Calls

    func find(_ id: String) async throws -> Hhsocket_FindReply {
        var request = Hhsocket_FindRequest()
        request.id = id
        let body = try ByteBuffer(message: request)
        return try await self.client.data(for: SocketRequest(type: self.types.find, body: body)).body.message()
    }

    func discard(_ id: String, writer: UInt64) async throws -> Hhsocket_DiscardReply {
        var request = Hhsocket_DiscardRequest()
        request.id = id
        request.writer = writer
        let body = try ByteBuffer(message: request)
        return try await self.client.data(for: SocketRequest(type: self.types.discard, body: body)).body.message()
    }

    func signIn(_ identity: String) async throws {
        _ = try await self.client.data(for: SocketRequest(type: 100, body: ByteBuffer(string: identity)))
    }
}
