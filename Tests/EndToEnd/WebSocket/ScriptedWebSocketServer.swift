// SPDX-License-Identifier: Apache-2.0
import HHSocket
import NIOConcurrencyHelpers
import NIOCore
import NIOPosix
import TestSupport

/// A WebSocket server that keeps the bytes of its clients, and sends the answers that the test determines, right or
/// wrong.
final class ScriptedWebSocketServer: Sendable {
    /// A client's frame, unmasked.
    struct Frame: Hashable, Sendable {
        var first: UInt8
        var payload: [UInt8]

        var isPing: Bool { self.first == 0x89 }
        var isClose: Bool { self.first == 0x88 }
        var isText: Bool { self.first == 0x81 }
        var text: String { String(decoding: self.payload, as: UTF8.self) }
    }

    struct Connection: Sendable {
        /// The opening request, up to its empty line.
        var request = ""
        var frames: [Frame] = []
        /// Whether the client has ended its direction of TCP.
        var clientHasEnded = false
        /// Whether TCP has ended in both directions.
        var isGone = false

        var texts: [String] { self.frames.filter(\.isText).map(\.text) }
        var pings: [Frame] { self.frames.filter(\.isPing) }
        var close: Frame? { self.frames.first(where: \.isClose) }
    }

    /// The answer to the opening request of a connection with this number, from 0.
    enum Answer: Sendable {
        case accept
        /// Any other bytes.
        case raw(String)
        /// No answer.
        case silence
    }

    enum Reaction: Sendable {
        /// A ping is answered, and a close frame is answered and ends TCP.
        case usual
        case send([UInt8])
        case silence
    }

    let connections = Watched<[Connection]>([])
    private let channels = NIOLockedValueBox<[any Channel]>([])
    private let channel: any Channel

    init(
        port: Int = 0,
        answer: @escaping @Sendable (_ number: Int, _ request: String) -> Answer = { _, _ in .accept },
        reaction: @escaping @Sendable (_ number: Int, _ frame: Frame) -> Reaction = { _, _ in .usual }
    ) async throws {
        let (connections, channels) = (self.connections, self.channels)
        self.channel = try await ServerBootstrap(group: MultiThreadedEventLoopGroup.singleton)
            .serverChannelOption(.socketOption(.so_reuseaddr), value: 1)
            .childChannelOption(.allowRemoteHalfClosure, value: true)
            .childChannelInitializer { channel in
                channel.eventLoop.makeCompletedFuture {
                    let number = connections.withLockedValue { connections in
                        connections.append(Connection())
                        return connections.count - 1
                    }
                    channels.withLockedValue { $0.append(channel) }
                    let handler = Handler(number, connections, answer: answer, reaction: reaction)
                    try channel.pipeline.syncOperations.addHandler(handler)
                }
            }
            .bind(host: "127.0.0.1", port: port)
            .get()
    }

    var port: Int { self.channel.localAddress?.port ?? 0 }

    /// The number of TCP connections so far.
    var count: Int { self.connections.current.count }

    func url(_ path: String = "/chat") -> String { "ws://127.0.0.1:\(self.port)\(path)" }

    /// Waits until `find` finds something in the connection, and returns it.
    func value<Found: Sendable>(
        _ what: String,
        of number: Int = 0,
        fileID: String = #fileID,
        line: Int = #line,
        _ find: @escaping @Sendable (Connection) -> Found?
    ) async throws -> Found {
        try await self.connections.value(what, fileID: fileID, line: line) { connections in
            connections.indices.contains(number) ? find(connections[number]) : nil
        }
    }

    func wait(
        _ what: String,
        of number: Int = 0,
        fileID: String = #fileID,
        line: Int = #line,
        until condition: @escaping @Sendable (Connection) -> Bool
    ) async throws {
        try await self.value(what, of: number, fileID: fileID, line: line) { condition($0) ? () : nil }
    }

    func send(_ bytes: [UInt8], on number: Int = 0) async throws {
        try await self.channels.withLockedValue { $0[number] }.writeAndFlush(ByteBuffer(bytes: bytes))
    }

    /// Ends TCP without a close frame.
    func cut(_ number: Int = 0) {
        self.channels.withLockedValue { $0[number] }.close(promise: nil)
    }

    /// Ends the listener and all connections.
    func close() async {
        try? await self.channel.close()
        for channel in self.channels.withLockedValue({ $0 }) { channel.close(promise: nil) }
    }

    /// Returns a server's frame.
    static func frame(_ first: UInt8, _ payload: [UInt8]) -> [UInt8] {
        let length = payload.count
        guard length > 125 else { return [first, UInt8(length)] + payload }
        let width = length <= 0xFFFF ? 2 : 8
        let bytes = (0..<width).reversed().map { UInt8(truncatingIfNeeded: length >> ($0 * 8)) }
        return [first, width == 2 ? 126 : 127] + bytes + payload
    }

    static func text(_ text: String) -> [UInt8] { self.frame(0x81, Array(text.utf8)) }

    static func close(_ code: UInt16, _ reason: String = "") -> [UInt8] {
        self.frame(0x88, [UInt8(code >> 8), UInt8(code & 0xFF)] + Array(reason.utf8))
    }

    private final class Handler: ChannelInboundHandler {
        typealias InboundIn = ByteBuffer
        typealias OutboundOut = ByteBuffer

        private let number: Int
        private let connections: Watched<[Connection]>
        private let answer: @Sendable (Int, String) -> Answer
        private let reaction: @Sendable (Int, Frame) -> Reaction
        private var received = ByteBuffer()
        private var isOpen = false

        init(
            _ number: Int,
            _ connections: Watched<[Connection]>,
            answer: @escaping @Sendable (Int, String) -> Answer,
            reaction: @escaping @Sendable (Int, Frame) -> Reaction
        ) {
            self.number = number
            self.connections = connections
            self.answer = answer
            self.reaction = reaction
        }

        private func note(_ change: (inout Connection) -> Void) {
            self.connections.withLockedValue { change(&$0[self.number]) }
        }

        private func send(_ bytes: [UInt8], _ context: ChannelHandlerContext) {
            context.writeAndFlush(self.wrapOutboundOut(ByteBuffer(bytes: bytes)), promise: nil)
        }

        func channelRead(context: ChannelHandlerContext, data: NIOAny) {
            self.received.writeImmutableBuffer(self.unwrapInboundIn(data))
            if !self.isOpen { self.open(context) }
            while self.isOpen, let frame = self.nextFrame() {
                // The answer is sent before the test sees the frame.
                switch self.reaction(self.number, frame) {
                case .silence: break
                case .send(let bytes): self.send(bytes, context)
                case .usual where frame.isPing: self.send(ScriptedWebSocketServer.frame(0x8A, frame.payload), context)
                case .usual where frame.isClose:
                    self.send(ScriptedWebSocketServer.frame(0x88, Array(frame.payload.prefix(2))), context)
                    context.close(mode: .output, promise: nil)
                case .usual: break
                }
                self.note { $0.frames.append(frame) }
            }
        }

        private func open(_ context: ChannelHandlerContext) {
            let end = Array("\r\n\r\n".utf8)
            let view = self.received.readableBytesView
            guard let index = view.indices.first(where: { view[$0...].starts(with: end) }),
                let request = self.received.readString(length: index - view.startIndex + end.count)
            else { return }
            switch self.answer(self.number, request) {
            case .silence: break
            case .raw(let text): self.send(Array(text.utf8), context)
            case .accept:
                let name = "Sec-WebSocket-Key: "
                let line = request.split(separator: "\r\n").first { $0.hasPrefix(name) }
                let key = line.flatMap { OpeningKey(text: String($0.dropFirst(name.count))) }
                let accept = key?.accept ?? ""
                let answer = """
                    HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\
                    Sec-WebSocket-Accept: \(accept)\r\n\r\n
                    """
                self.send(Array(answer.utf8), context)
                self.isOpen = true
            }
            self.note { $0.request = request }
        }

        /// The next frame, which must be masked.
        private func nextFrame() -> Frame? {
            let bytes = self.received.readableBytesView
            let start = bytes.startIndex
            guard bytes.count >= 2 else { return nil }
            let short = Int(bytes[start + 1] & 0x7F)
            let width = short == 126 ? 2 : short == 127 ? 8 : 0
            guard bytes.count >= 2 + width + 4 else { return nil }
            let length =
                width == 0 ? short : bytes[(start + 2)..<(start + 2 + width)].reduce(0) { $0 << 8 | Int($1) }
            let header = 2 + width + 4
            guard bytes.count >= header + length else { return nil }
            let key = Array(bytes[(start + header - 4)..<(start + header)])
            let payload = bytes[(start + header)..<(start + header + length)].enumerated().map { $1 ^ key[$0 & 3] }
            let isMasked = bytes[start + 1] & 0x80 != 0
            let first = bytes[start]
            self.received.moveReaderIndex(forwardBy: header + length)
            // If it is not masked, the test sees a frame that no client sends.
            return Frame(first: isMasked ? first : 0xFF, payload: payload)
        }

        func userInboundEventTriggered(context: ChannelHandlerContext, event: Any) {
            guard case .inputClosed? = event as? ChannelEvent else { return }
            self.note { $0.clientHasEnded = true }
            context.close(promise: nil)
        }

        func channelInactive(context: ChannelHandlerContext) {
            self.note {
                $0.clientHasEnded = true
                $0.isGone = true
            }
        }

        func errorCaught(context: ChannelHandlerContext, error: any Error) {
            context.close(promise: nil)
        }
    }
}

/// Links for tests: quick to reconnect, and without a monitor of the machine's network.
enum TestLink {
    static func configuration(
        _ url: String,
        _ configure: (inout WebSocketLink.Configuration) -> Void = { _ in }
    ) throws -> WebSocketLink.Configuration {
        var configuration = try WebSocketLink.Configuration(url: url)
        configuration.socket.backoff = Backoff(base: .milliseconds(20), cap: .milliseconds(50))
        configuration.socket.networkMonitor = nil
        configure(&configuration)
        return configuration
    }

    static func make(
        _ url: String,
        _ configure: (inout WebSocketLink.Configuration) -> Void = { _ in }
    ) throws -> WebSocketLink {
        WebSocketLink(configuration: try self.configuration(url, configure))
    }

    /// A port where nothing listens.
    static func freePort() async throws -> Int {
        let listener = try await ByteServer { _, _ in ByteBuffer() }
        try await listener.close()
        return listener.endpoint.port
    }

    /// Waits for the next end of a connection that was open.
    static func closure(_ events: AsyncStream<WebSocketLink.Event>) async throws -> WebSocketLink.Closure {
        let event = try await first(of: events, "the end of a connection") { event in
            if case .closed = event { true } else { false }
        }
        guard case .closed(let closure) = event else { throw Unexpected(description: "\(event)") }
        return closure
    }

    /// Waits for an event of the connection.
    static func event(
        _ events: AsyncStream<WebSocketLink.Event>,
        _ what: String,
        where predicate: @escaping @Sendable (SocketEvent) -> Bool
    ) async throws {
        _ = try await first(of: events, what) { event in
            if case .connection(let event) = event { predicate(event) } else { false }
        }
    }

    static func waitForOpening(_ events: AsyncStream<WebSocketLink.Event>) async throws {
        _ = try await first(of: events, "an opening") { if case .opened = $0 { true } else { false } }
    }

    static func waitUntilItGivesUp(_ events: AsyncStream<WebSocketLink.Event>) async throws {
        try await self.event(events, "the end of the attempts") { if case .gaveUp = $0 { true } else { false } }
    }
}

/// The outcomes of messages, by their texts.
final class Outcomes: Sendable {
    private let state = Watched<[(text: String, error: SocketError?)]>([])

    func send(_ text: String, on link: WebSocketLink) {
        link.send(WebSocketMessage(text)) { result in
            let error: SocketError? = if case .failure(let error) = result { error } else { nil }
            self.state.withLockedValue { $0.append((text, error)) }
        }
    }

    var all: [(text: String, error: SocketError?)] { self.state.current }
    /// The texts of the sent messages.
    var sent: [String] { self.all.filter { $0.error == nil }.map(\.text) }

    /// Waits until there are `count` outcomes in all.
    func wait(for count: Int, fileID: String = #fileID, line: Int = #line) async throws {
        try await self.state.wait("\(count) outcomes", fileID: fileID, line: line) { $0.count >= count }
    }

    func error(of text: String) -> SocketError? { self.all.first { $0.text == text }?.error }
}
