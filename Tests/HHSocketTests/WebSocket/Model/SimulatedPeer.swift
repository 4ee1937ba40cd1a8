// SPDX-License-Identifier: Apache-2.0
import HHSocketTesting
import NIOCore
import NIOEmbedded
import TestSupport

@testable import HHSocket
@testable import HHSocketLink

/// The mood of the servers, which determines their treatment of new connections.
struct ServerMood: CustomStringConvertible {
    enum Opening: CustomStringConvertible {
        case accepts
        /// Accepts only on request.
        case acceptsLater
        case refusesConnections
        /// The connection is never made.
        case isAway
        /// Rejects with this HTTP status, and the value of `Retry-After`.
        case refuses(Int, retryAfter: Int?)
        case talksNonsense
        /// Ends TCP without an answer.
        case hangsUp

        var description: String {
            switch self {
            case .accepts: "accepts"
            case .acceptsLater: "accepts later"
            case .refusesConnections: "refuses connections"
            case .isAway: "is away"
            case .refuses(let status, let time): "refuses with \(status), \(time.map { "\($0) s" } ?? "no time")"
            case .talksNonsense: "talks nonsense"
            case .hangsUp: "hangs up"
            }
        }
    }

    var opening = Opening.accepts
    var answersPings = true
    /// Whether it answers a close frame, and ends TCP.
    var answersCloses = true
    /// The number of bytes that the kernels hold while the server does not read.
    var capacity = 200_000

    var description: String {
        "\(self.opening)\(self.answersPings ? "" : ", no pongs")\(self.answersCloses ? "" : ", no close"), "
            + "\(self.capacity) bytes"
    }
}

/// An item that a server sends.
enum ServerItem: Hashable, CustomStringConvertible {
    case message(isText: Bool, length: Int, fragments: Int)
    /// Has the client's handler send messages, if there is a handler.
    case request(count: Int)
    case ping
    case pong
    case close(UInt16?)
    /// Bytes that RFC 6455 forbids, of one of ``violations``.
    case violation(Int)

    var description: String {
        switch self {
        case .message(let isText, let length, let fragments): "\(isText ? "text" : "binary") \(length) / \(fragments)"
        case .request(let count): "asks for \(count)"
        case .ping: "ping"
        case .pong: "pong"
        case .close(let code): "close \(code ?? 0)"
        case .violation(let number): "violation \(number)"
        }
    }

    static let violations: [(bytes: [UInt8], code: UInt16)] = [
        ([0x81, 0x80, 0, 0, 0, 0], 1_002), ([0x83, 0], 1_002), ([0x80, 0], 1_002), ([0x88, 1, 3], 1_002),
        ([0x81, 1, 0xFF], 1_007), ([0x09, 0], 1_002), ([0x82, 127, 0, 0, 0, 1, 0, 0, 0, 0], 1_009),
    ]
}

/// The observer of a world's connections.
protocol PeerObserver: AnyObject {
    func messageBegins(_ number: Int?, _ peer: SimulatedPeer)
    func messageIsWhole(_ kind: WebSocketMessageKind, _ payload: ByteBuffer, _ peer: SimulatedPeer)
    func closeWasWritten(_ close: WebSocketClose, _ peer: SimulatedPeer)
    func wasDelivered(_ item: SimulatedPeer.Sent, _ peer: SimulatedPeer)
    /// Called before a read that the pipeline has requested.
    func willRead(_ peer: SimulatedPeer)
    func hasClosed(_ peer: SimulatedPeer)
    func fail(_ promise: String)
}

/// A server's end of one connection, with the network in between.
final class SimulatedPeer: SimulatedRemote {
    struct Sent {
        /// The offset after its last byte.
        var end: Int
        var item: ServerItem
        /// The payload of a message, or of a pong's ping.
        var payload = ByteBuffer()
    }

    enum End {
        case fin
        /// A reset; `loses` is whether unread bytes are lost.
        case reset(loses: Bool)
        /// The client's next write fails.
        case onWrite
    }

    let number: Int
    let mood: ServerMood
    private unowned let observer: any PeerObserver
    private(set) var channel: SimulatedChannel!
    let agreement: DeflateAgreement?

    // From the client.
    private var stream: ClientStream
    /// The offsets of the bytes written, taken by the kernel, and read by the server.
    private(set) var writtenBytes = 0
    private(set) var takenBytes = 0
    private var readBytes = 0
    private var unseen: [(end: Int, item: ClientStream.Item)] = []
    private(set) var isInMessage = false
    var isReading = true
    /// The number of bytes that it still reads while reading is suspended.
    var allowance = 0

    // To the client.
    private var outgoing = ByteBuffer()
    private var sentBytes = 0
    private(set) var deliveredBytes = 0
    private var sent: [Sent] = []
    private var encoder: WebSocketEncoder

    /// Whether nothing passes, in either direction.
    var isCut = false
    private var end: End?
    private(set) var isOpening = false
    private var request: String?
    /// Whether the server has answered 101.
    private(set) var isOpen = false
    private(set) var isOver = false
    private(set) var serverClose: WebSocketClose?
    private(set) var clientClose: WebSocketClose?
    private(set) var hasEndedOutput = false
    var breaksOnWrite: Bool { if case .onWrite = self.end { !self.isCut } else { false } }
    var room: Int {
        let capacity = self.isReading && !self.isCut ? max(20_000, self.mood.capacity) : self.mood.capacity
        return max(0, capacity - (self.takenBytes - self.readBytes))
    }

    private var generator: SeededGenerator

    init(
        _ number: Int,
        _ mood: ServerMood,
        _ agreement: DeflateAgreement?,
        _ observer: any PeerObserver,
        _ loop: EmbeddedEventLoop,
        _ generator: SeededGenerator
    ) {
        self.number = number
        self.generator = generator
        self.mood = mood
        self.agreement = agreement
        self.observer = observer
        self.stream = ClientStream(deflate: agreement)
        self.encoder = WebSocketEncoder(role: .server, deflate: agreement, account: nil)
        self.channel = SimulatedChannel(loop, self)
    }

    // MARK: What the client does

    func clientWrote(_ bytes: ByteBuffer) {
        self.writtenBytes += bytes.readableBytes
        self.stream.append(bytes)
        do throws(ClientStream.Fault) {
            while let item = try self.stream.next() { self.wrote(item) }
        } catch {
            self.observer.fail("connection \(self.number): \(error.description)")
        }
        self.isInMessage = self.stream.isInMessage
    }

    private func wrote(_ item: ClientStream.Item) {
        if case .begins(let number) = item { return self.observer.messageBegins(number, self) }
        self.unseen.append((self.stream.offset, item))
        switch item {
        case .message(let kind, let payload): self.observer.messageIsWhole(kind, payload, self)
        case .close(let close): self.observer.closeWasWritten(close, self)
        default: break
        }
    }

    /// The number of bytes of complete frames that the client has written.
    var wholeBytes: Int { self.stream.offset }

    func kernelTook(_ bytes: ByteBuffer) { self.takenBytes += bytes.readableBytes }
    func clientEndedOutput() { self.hasEndedOutput = true }

    func clientClosed() {
        self.isOver = true
        self.observer.hasClosed(self)
    }

    func takeRest() -> ByteBuffer? {
        guard self.outgoing.readableBytes > 0, let rest = self.outgoing.readSlice(length: self.outgoing.readableBytes)
        else { return nil }
        self.deliver(rest.readableBytes)
        return rest
    }

    // MARK: What the network does

    /// Delivers pending bytes.
    ///
    /// - Returns: Whether there were any.
    func settle() -> Bool {
        guard !self.isOver, !self.isCut else { return false }
        var hasMoved = self.readFromClient()
        if self.channel.bufferedBytes > 0, self.room > 0, self.channel.isActive {
            let before = self.takenBytes
            self.channel.becameWritable()
            hasMoved = hasMoved || self.takenBytes != before
        }
        if !self.isOver, self.channel.wantsRead, self.outgoing.readableBytes > 0 {
            self.observer.willRead(self)
            self.channel.read(self.parts())
            hasMoved = true
        }
        return self.bringEnd() || hasMoved
    }

    /// The bytes of one read.
    private func parts() -> [ByteBuffer] {
        let parts = self.outgoing.readParts(using: &self.generator)
        self.deliver(parts.reduce(0) { $0 + $1.readableBytes })
        return parts
    }

    private func deliver(_ count: Int) {
        self.deliveredBytes += count
        while let first = self.sent.first, first.end <= self.deliveredBytes {
            self.sent.removeFirst()
            self.observer.wasDelivered(first, self)
        }
    }

    /// The violation whose first bytes were delivered, but not yet the others.
    var begunViolation: Int? {
        guard case .violation(let number)? = self.sent.first?.item, let end = self.sent.first?.end,
            end - ServerItem.violations[number].bytes.count < self.deliveredBytes
        else { return nil }
        return number
    }

    private func bringEnd() -> Bool {
        guard !self.isOver, self.channel.isActive else { return false }
        switch self.end {
        case .fin:
            self.end = nil
            self.channel.end(self.takeRest())
        case .reset(let loses):
            self.end = nil
            self.channel.reset(loses ? nil : self.takeRest())
        case .onWrite, nil:
            return false
        }
        return true
    }

    private func readFromClient() -> Bool {
        let waiting = self.takenBytes - self.readBytes
        let count = self.isReading ? waiting : min(waiting, self.allowance)
        guard count > 0 else { return false }
        self.readBytes += count
        self.allowance = max(0, self.allowance - count)
        while let first = self.unseen.first, first.end <= self.readBytes {
            self.unseen.removeFirst()
            self.saw(first.item)
        }
        return true
    }

    // MARK: What the server does

    private func saw(_ item: ClientStream.Item) {
        switch item {
        case .request(let head):
            self.isOpening = true
            self.request = head
            self.answerOpening()
        case .ping(let payload):
            if self.mood.answersPings { self.send(.pong, payload) }
        case .close(let close):
            self.clientClose = close
            guard self.mood.answersCloses else { return }
            if self.serverClose == nil { self.send(.close(close.code)) }
            self.finish(.fin)
        case .message(_, let payload):
            // A heartbeat is answered with a pong.
            if self.mood.answersPings, payload == SentMessage.beat { self.send(.pong, payload) }
        case .begins, .pong:
            break
        }
    }

    private func answerOpening() {
        switch self.mood.opening {
        case .accepts: self.accept()
        case .acceptsLater, .refusesConnections, .isAway: break
        case .refuses(let status, let time):
            let time = time.map { "Retry-After: \($0)\r\n" } ?? ""
            self.send("HTTP/1.1 \(status) No\r\n\(time)Content-Length: 0\r\n\r\n")
        case .talksNonsense: self.send("nonsense\r\n\r\n")
        case .hangsUp: self.finish(.fin)
        }
    }

    /// Answers 101, if a request is open.
    func accept() {
        let name = "Sec-WebSocket-Key: "
        guard self.isOpening, !self.isOpen, !self.isOver,
            let line = self.request?.split(separator: "\r\n").first(where: { $0.hasPrefix(name) }),
            let key = OpeningKey(text: String(line.dropFirst(name.count)))
        else { return }
        self.isOpening = false
        self.isOpen = true
        let deflate = self.agreement == nil ? "" : "Sec-WebSocket-Extensions: permessage-deflate\r\n"
        self.send(
            """
            HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\
            Sec-WebSocket-Accept: \(key.accept)\r\nSec-WebSocket-Protocol: b\r\nX-Number: \(self.number)\r\n\
            \(deflate)\r\n
            """
        )
    }

    private func send(_ text: String) { self.send(ByteBuffer(string: text)) }

    private func send(_ bytes: ByteBuffer) {
        self.outgoing.writeImmutableBuffer(bytes)
        self.sentBytes += bytes.readableBytes
    }

    /// Sends frames, unless it has closed; meaningless bytes may follow its close frame.
    func send(_ item: ServerItem, _ payload: ByteBuffer = ByteBuffer()) {
        guard self.isOpen, !self.isOver, self.end == nil else { return }
        var bytes = ByteBuffer()
        switch item {
        case .message(let isText, _, let fragments):
            self.encode(isText ? .text : .binary, payload, fragments, into: &bytes)
        case .request:
            self.encoder.encode(.text, payload, into: &bytes)
        case .ping:
            self.encoder.encodePing(payload, into: &bytes)
        case .pong:
            self.encoder.encodePong(payload, into: &bytes)
        case .close(let code):
            guard self.serverClose == nil else { return }
            let close = WebSocketClose(code: code, reason: code == nil ? "" : "because")
            self.serverClose = close
            self.encoder.encodeClose(close, into: &bytes)
        case .violation(let number):
            bytes.writeBytes(ServerItem.violations[number].bytes)
        }
        self.send(bytes)
        self.sent.append(Sent(end: self.sentBytes, item: item, payload: payload))
    }

    private func encode(
        _ kind: WebSocketMessageKind,
        _ payload: ByteBuffer,
        _ count: Int,
        into bytes: inout ByteBuffer
    ) {
        guard count > 1 else { return self.encoder.encode(kind, payload, into: &bytes) }
        var rest = payload
        for index in 0..<count {
            let length = index == count - 1 ? rest.readableBytes : payload.readableBytes / count
            guard let part = rest.readSlice(length: length) else { return }
            let isFinal = index == count - 1
            self.encoder.encodeFragment(kind, isFirst: index == 0, isFinal: isFinal, part, into: &bytes)
            if !isFinal { self.encoder.encodePong(ByteBuffer(), into: &bytes) }
        }
    }

    /// Ends TCP, after the sent bytes.
    func finish(_ end: End) {
        guard !self.isOver, self.end == nil else { return }
        self.end = end
    }

    /// Reads everything, and ends TCP.
    func finishWell() {
        self.isCut = false
        self.isReading = true
        self.end = .fin
    }

    /// Makes the server unreachable without notifying the client.
    func release() { self.channel = nil }
}
