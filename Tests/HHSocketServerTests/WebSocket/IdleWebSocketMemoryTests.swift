// SPDX-License-Identifier: Apache-2.0
#if os(Linux)
import Foundation
import HHSocket
import HHSocketServer
import HHSocketTesting
import NIOConcurrencyHelpers
import NIOCore
import NIOPosix
import TestSupport
import Testing

/// The memory of a server's idle connections, compared with idle TCP connections of the process. Clients are only
/// descriptors, so that the process's memory is the server's.
@Suite(.tags(.io), .serialized, .timeLimit(.minutes(10))) struct IdleWebSocketMemoryTests {
    /// The use of a connection before it is idle.
    enum Kind: String, CaseIterable, Sendable {
        /// Frames over TCP: one heartbeat.
        case tcp
        /// Frames over WebSocket: one heartbeat.
        case frames
        /// A message, echoed by the handler that is called for each, or by a task.
        case handler
        case task
        /// Like `handler`, with compression agreed on but not used.
        case handlerAgreed
        case taskAgreed
        /// Compressed messages of more than a window, echoed.
        case handlerUsed
        case taskUsed
        /// Like `handlerUsed`, without keeping windows from message to message.
        case handlerForgetful

        var path: String {
            switch self {
            case .tcp: ""
            case .frames: "/rpc"
            case .handler: "/handler"
            case .task: "/task"
            case .handlerAgreed, .handlerUsed: "/handler/deflate"
            case .taskAgreed, .taskUsed: "/task/deflate"
            case .handlerForgetful: "/handler/forgetful"
            }
        }

        var agreement: DeflateAgreement? {
            switch self {
            case .tcp, .frames, .handler, .task: nil
            case .handlerForgetful: DeflateAgreement(serverNoContextTakeover: true, clientNoContextTakeover: true)
            default: DeflateAgreement()
            }
        }

        var isUsed: Bool { [.handlerUsed, .taskUsed, .handlerForgetful].contains(self) }

        /// The number of bytes that it may take beyond a connection over TCP.
        var limit: Int {
            var limit = 2 << 10
            #if DEBUG
            // The frames of unoptimised functions require another slab of the task's memory.
            if [.task, .taskAgreed, .taskUsed].contains(self) { limit += 2_400 }
            #endif
            switch self {
            // The window of 32 KiB, to which the client may refer, and pages at its ends that are partly in use
            // otherwise. The contexts themselves are 300 KiB.
            case .handlerUsed, .taskUsed: return limit + (46 << 10)
            case .handlerForgetful: return limit + (6 << 10)
            default: return limit
            }
        }
    }

    /// A heartbeat of the standard format.
    private static let heartbeat: [UInt8] = [UInt8](repeating: 0, count: 15) + [1]

    /// Messages of words and numbers, more than a window of them. Each is compressed to less than the read buffer of an
    /// idle connection, which would not shrink again, in any language.
    private static let longTexts: [String] = {
        var random = SplitMix(seed: 36)
        let words = ["price", "\"EUR\"", "{\"ask\":", "update", "[", "},", "session-", "ü", "volume", " "]
        return (0..<20).map { _ in
            var text = ""
            while text.utf8.count < 2_000 {
                text += words.randomElement(using: &random) ?? ""
                text += String(UInt16.random(in: .min ... .max, using: &random))
            }
            return text
        }
    }()

    /// Connects, and exchanges the messages of the kind.
    private static func makeClient(_ kind: Kind, _ ports: (tcp: Int, webSocket: Int)) throws -> BlockingClient {
        guard kind != .tcp else {
            let client = try BlockingClient(port: ports.tcp)
            try client.send(self.heartbeat)
            _ = try client.receive(self.heartbeat.count + 4)
            return client
        }
        let client = try BlockingClient(port: ports.webSocket)
        try client.open(kind)
        var encoder = WebSocketEncoder(role: .client, deflate: kind.agreement, account: nil)
        var bytes = ByteBuffer()
        if kind == .frames {
            encoder.encode(.binary, ByteBuffer(bytes: self.heartbeat), into: &bytes)
            try client.send(Array(bytes.readableBytesView))
            _ = try client.receiveFrame()
            return client
        }
        for text in kind.isUsed ? self.longTexts : ["hello"] {
            bytes.clear()
            encoder.encode(.text, ByteBuffer(string: text), into: &bytes)
            try client.send(Array(bytes.readableBytesView))
            let echo = try client.receiveFrame()
            if !kind.isUsed { #expect(echo == Array(text.utf8)) } else { #expect(echo.count < text.utf8.count) }
        }
        return client
    }

    private static func makeServer() throws -> SocketServer {
        var router = Router()
        router.handleSynchronously(101) { request, _ in request.body }
        var configuration = SocketServer.Configuration(listeners: [
            ServerListener(port: 0), try ServerListener(url: "ws://127.0.0.1:0/rpc", tls: nil),
        ])
        // All clients have one address.
        configuration.limits.connectionRatePerAddress = nil
        let server = SocketServer(configuration: configuration, router: router)
        var forgetful = WebSocketCompression()
        (forgetful.serverForgets, forgetful.clientForgets) = (true, true)
        for (path, compression) in [
            ("", nil), ("/deflate", WebSocketCompression()), ("/forgetful", forgetful),
        ] as [(String, WebSocketCompression?)] {
            var options = WebSocketRouteOptions()
            options.compression = compression
            try server.webSocket("/handler\(path)", options: options, onMessage: { $1.post($0) })
            try server.webSocket("/task\(path)", options: options) { connection in
                for await message in connection.messages { try await connection.send(message) }
            }
        }
        return server
    }

    /// Opens `count` connections. It blocks, so it does not run on one of the few threads of Swift's tasks.
    private static func makeClients(
        _ kind: Kind,
        count: Int,
        _ ports: (tcp: Int, webSocket: Int)
    ) async throws -> [BlockingClient] {
        try await NIOThreadPool.singleton.runIfActive {
            try Clients(clients: (0..<count).map { _ in try self.makeClient(kind, ports) })
        }.clients
    }

    private struct Clients: @unchecked Sendable {
        // Proof of Sendable: made on one thread, and used on another only when it is complete.
        var clients: [BlockingClient]
    }

    private static func resident() -> Int {
        returnFreeMemory()
        return residentBytes()
    }

    /// The bytes that accounts count for a connection without the contexts of compression, of 300 KiB. These are freed
    /// one connection's after the other's once they were not used for a while.
    private struct Resting {
        var kind = 0
        var tcp = 0

        /// Waits until no connection holds contexts: in the memory of other connections they would be missing.
        func contextsAreFreed(_ server: SocketServer, _ kinds: Int, tcp: Int) async throws {
            // Accounts are exact to 4 KiB.
            let limit = kinds * (self.kind + 4 << 10) + tcp * (self.tcp + 4 << 10)
            try await eventually("the contexts of compression are freed", every: .milliseconds(100)) {
                server.heldBytes <= limit
            }
        }
    }

    /// The bytes that a connection of this kind takes, and those of one over TCP.
    private static func measure(_ kind: Kind) async throws -> (kind: Int, tcp: Int) {
        let server = try self.makeServer()
        try await server.start()
        let ports = (tcp: server.addresses[0].port, webSocket: server.addresses[1].port)
        let count = kind.isUsed ? 250 : 1_000
        var resting = Resting()
        var warm = try await self.makeClients(.tcp, count: 1, ports)
        resting.tcp = server.heldBytes
        warm += try await self.makeClients(kind, count: 1, ports)
        try await eventually("the contexts of one connection are freed") { server.heldBytes < 128 << 10 }
        resting.kind = server.heldBytes - resting.tcp
        warm += try await self.makeClients(kind, count: 49, ports) + self.makeClients(.tcp, count: 49, ports)
        try await resting.contextsAreFreed(server, 50, tcp: 50)
        let before = self.resident()
        let plain = try await self.makeClients(.tcp, count: count, ports)
        let between = self.resident()
        let clients = try await self.makeClients(kind, count: count, ports)
        let costOfTCP = (between - before) / count
        try await resting.contextsAreFreed(server, 50 + count, tcp: 50 + count)
        let least = NIOLockedValueBox(Int.max)
        // The return of free memory takes milliseconds of processor time.
        let time = Duration.seconds(kind.isUsed ? 40 : 5)
        let isLittle: Void? = try? await eventually("little memory", within: time, every: .milliseconds(200)) {
            let cost = (self.resident() - between) / count
            least.withLockedValue { $0 = min($0, cost) }
            return cost <= costOfTCP + kind.limit
        }
        if isLittle == nil { print("\(kind): too much memory, however long one waits") }
        let cost = least.withLockedValue { $0 }
        #expect(server.connectionCount == warm.count + plain.count + clients.count)
        await server.shutdown(gracePeriod: .zero)
        return (cost, costOfTCP)
    }

    private static func check(_ kind: Kind) async {
        let result = await #expect(
            processExitsWith: .success,
            observing: [\.standardOutputContent]
        ) { [name = kind.rawValue as String] in
            let kind = try #require(Kind(rawValue: name))
            let cost = try await Self.measure(kind)
            print("\(kind): \(cost.kind) bytes for each idle connection, \(cost.tcp) over TCP")
            #expect(cost.kind <= cost.tcp + kind.limit, "\(kind): \(cost)")
        }
        print(String(decoding: result?.standardOutputContent ?? [], as: UTF8.self), terminator: "")
    }

    @Test func idleConnectionCostsHardlyMoreThanOverTCP() async {
        // Each kind has a separate process, most of which wait for memory to be freed.
        await withTaskGroup { group in
            for kind in Kind.allCases { group.addTask { await Self.check(kind) } }
        }
    }
}

extension BlockingClient {
    /// The head of the server's answer.
    fileprivate func receiveHead() throws -> String {
        var bytes: [UInt8] = []
        while !bytes.suffix(4).elementsEqual("\r\n\r\n".utf8) { bytes += try self.receive(1) }
        return String(decoding: bytes, as: UTF8.self)
    }

    /// The payload of the next frame.
    fileprivate func receiveFrame() throws -> [UInt8] {
        let short = Int(try self.receive(2)[1])
        guard short >= 126 else { return try self.receive(short) }
        let length = try self.receive(short == 126 ? 2 : 8).reduce(0) { $0 << 8 | Int($1) }
        return try self.receive(length)
    }

    fileprivate func open(_ kind: IdleWebSocketMemoryTests.Kind) throws {
        let extensions = kind.agreement == nil ? "" : "Sec-WebSocket-Extensions: permessage-deflate\r\n"
        let subprotocol = kind == .frames ? "Sec-WebSocket-Protocol: hhsocket.1\r\n" : ""
        // The request of a browser.
        let request = """
            GET \(kind.path) HTTP/1.1\r\nHost: chat.example.com\r\nConnection: Upgrade\r\nPragma: no-cache\r\n\
            Cache-Control: no-cache\r\nUpgrade: websocket\r\nOrigin: https://example.com\r\n\
            Sec-WebSocket-Version: 13\r\nAccept-Encoding: gzip, deflate, br\r\nAccept-Language: en-US,en;q=0.9\r\n\
            User-Agent: Mozilla/5.0 (X11; Linux x86_64) AppleWebKit/537.36 Chrome/126.0.0.0 Safari/537.36\r\n\
            Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\(extensions)\(subprotocol)\r\n
            """
        try self.send(Array(request.utf8))
        let head = try self.receiveHead()
        guard head.hasPrefix("HTTP/1.1 101"),
            head.contains("permessage-deflate") == (kind.agreement != nil)
        else { throw Unexpected(description: "not opened: \(head)") }
    }
}
#endif
