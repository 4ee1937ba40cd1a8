// SPDX-License-Identifier: Apache-2.0
import Foundation
import TestSupport
import Testing

/// The stored properties that have bytes. A received payload is a slice of the buffer of a read, up to 256 KiB, which
/// it keeps. So whatever is kept for longer than the batch in which it was received is owned, or charged by what it
/// keeps; a property that is added must say here which of that it is, and where.
@Suite struct KeptBytesSourceTests {
    private enum Reason {
        /// The bytes are owned, by their type.
        case owned
        /// The bytes were received, and this file owns or detaches them, or charges what they keep.
        case detached(in: String)
        /// The bytes that a decoder has received and not returned. Its `heldBytes`, which are charged, are the memory
        /// that they keep.
        case decoder
        /// The first bytes of a connection, which precede what it is. They are bounded by this limit of the file, and
        /// are copied, or a slice of a first read, which has at most 2 KiB.
        case beginning(limit: String)
        /// The bytes were made here, by encoding, copying or reading a file, or are those of the application.
        case own
        /// The value exists only during the turn in which its bytes were received.
        case passing
        /// The value is handed to the application, and kept for as long as that wishes. While it waits for the
        /// application, another property of this list has it.
        case application
        /// A unit that is part of other values, whose properties are in this list, or in a queue that detaches units.
        case unit
    }

    private static let reasons: [String: Reason] = [
        // HHSocketLink and HHSocket
        "Batch.buffer": .passing,
        "BodyInflater.input": .detached(in: "HHSocketServer/Session/FrameSession.swift"),
        "BodyInflater.output": .own,
        "BufferPool.buffers": .own,
        "Envelope.body": .passing,
        "FrameCodec.frames": .own,
        "FrameDecoder.block": .decoder,
        "FrameDecoder.input": .decoder,
        "FrameDecoder.partial": .decoder,
        "HTTPBodyReader.body": .own,
        "HTTPConnectNegotiation.request": .own,
        "HTTPHeadReader.unread": .decoder,
        "Handshake.frames": .detached(in: "HHSocket/Frames/PendingConnection.swift"),
        "HeartbeatPolicy.payload": .own,
        "HelloAnswer.bytes": .passing,
        "HelloAnswer.payload": .own,
        "LentBytes.buffer": .passing,
        "LentBytes.payload": .passing,
        "LineDecoder.input": .decoder,
        "LineLanguage.payload": .unit,
        "LinePeer.delivery": .detached(in: "HHSocketLink/Lines/ReceivedLine.swift"),
        "OpeningResponseReader.body": .own,
        "PendingConnection.heldAnswers": .detached(in: "HHSocket/Frames/PendingConnection.swift"),
        "PieceAssembly.bytes": .owned,
        "ProxyHandshake.received": .own,
        "ReceiveBuffers.buffers": .own,
        "ReceiveBuffers.latest": .own,
        "ReceivedLine.bytes": .detached(in: "HHSocketLink/Lines/ReceivedLine.swift"),
        "ReceivedLine.inbox": .detached(in: "HHSocketLink/Lines/ReceivedLine.swift"),
        "ReceivedLine.reader": .detached(in: "HHSocketLink/Lines/ReceivedLine.swift"),
        "SOCKS5Negotiation.authentication": .own,
        "SOCKS5Negotiation.request": .own,
        "SendBytes.body": .detached(in: "HHSocketLink/Loop/DetachedBytes.swift"),
        "SendBytes.gathered": .own,
        "SendBytes.gatheredBeforeBody": .own,
        "SendBytes.others": .detached(in: "HHSocketLink/Loop/DetachedBytes.swift"),
        "SocketError.body": .application,
        "StreamLane.bytes": .detached(in: "HHSocketLink/Streams/StreamLane.swift"),
        "StreamLane.frame": .passing,
        "StreamOutcome.answer": .application,
        "StreamOutcome.payload": .detached(in: "HHSocketLink/Streams/StreamItem+Inbox.swift"),
        "StreamPort.payload": .detached(in: "HHSocketServer/Streams/StreamExchange.swift"),
        "StreamScheduler.cancels": .own,
        "StreamScheduler.frame": .passing,
        "TransferPart.bytes": .passing,
        "TransferPart.items": .own,
        "WebSocketCarriage.ping": .owned,
        "WebSocketDecoder.block": .decoder,
        "WebSocketDecoder.body": .decoder,
        "WebSocketDecoder.compressed": .decoder,
        "WebSocketDecoder.input": .decoder,
        "WebSocketMessage.payload": .detached(in: "HHSocketLink/WebSocket/Messages/WebSocketMessages.swift"),
        "WebSocketPeer.payload": .owned,
        "WebSocketRefusal.body": .own,
        "WebSocketStreamWriter.first": .detached(in: "HHSocketLink/Loop/DetachedBytes.swift"),
        "WebSocketStreamWriter.others": .detached(in: "HHSocketLink/Loop/DetachedBytes.swift"),
        "WebSocketUnit.payload": .unit,
        "WriterQueue.frame": .own,
        // HHSocketRPC and HHSocketTransfers
        "ClientConnection.cancellations": .own,
        "GetRun.content": .passing,
        "GetRun.contents": .own,
        "PushCenter.frame": .detached(in: "HHSocketRPC/Pushes/PushCenter.swift"),
        "PushRouter.pushes": .passing,
        "PutRun.items": .own,
        "SocketPush.body": .detached(in: "HHSocketRPC/Pushes/SocketPush.swift"),
        "SocketRequest.body": .own,
        "SocketResponse.body": .application,
        "TransferSink.bytes": .own,
        "TransferSource.bytes": .own,
        // HHSocketServer
        "AnswerWriter.order": .detached(in: "HHSocketServer/Session/AnswerWriter.swift"),
        "ChargedInflation.bytes": .own,
        "ClientHello.message": .beginning(limit: "maximumLength"),
        "ClientHello.received": .beginning(limit: "maximumHeldBytes"),
        "ClientHello.rest": .beginning(limit: "maximumHeldBytes"),
        "CompletionQueue.answer": .own,
        "HandlerRun.emptyAnswer": .own,
        "HandshakeWait.held": .owned,
        "KeptAnswer.body": .detached(in: "HHSocketServer/Idempotency/KeptAnswer.swift"),
        "ListenerSettings.linkSettings": .own,
        "ProxyHeaderReader.bytes": .beginning(limit: "largestBlock"),
        "PushQueue.bytes": .owned,
        "RequestGate.frame": .detached(in: "HHSocketServer/Session/FrameSession.swift"),
        "ServerRequest.body": .detached(in: "HHSocketServer/Session/FrameSession.swift"),
        "StatusError.body": .own,
        "TLSPieces.bytes": .own,
        "WebSocketAcceptance.held": .own,
        // HHSocketSTOMP
        "STOMPDecoder.behind": .decoder,
        "STOMPDecoder.input": .decoder,
        "STOMPFrame.body": .unit,
        "STOMPHeaders.bytes": .detached(in: "HHSocketSTOMP/Frames/STOMPHeaders.swift"),
        "STOMPMessage.frame": .detached(in: "HHSocketSTOMP/STOMPMessage.swift"),
        "STOMPServerError.body": .application,
        "STOMPUnit.frame": .unit,
    ]

    private static let modules = [
        "HHSocketLink", "HHSocket", "HHSocketTransferValues", "HHSocketRPC", "HHSocketTransfers", "HHSocketServer",
        "HHSocketServerTransfers", "HHSocketOperations", "HHSocketSTOMP",
    ]

    /// The types that have bytes.
    private static let types: Set<String> = [
        "ByteBuffer", "LentBytes", "OwnedBytes", "ArrivedFrame", "Frame", "STOMPFrame", "WebSocketMessage",
        "WebSocketUnit", "SocketPush", "LineUnit", "ReceivedLine",
    ]

    /// The name of a stored property of a type that has bytes, if a line declares one.
    ///
    /// - Parameter isInType: Whether the line stands directly in a type: without a type of their own, variables of a
    ///   function look like properties.
    private static func property(_ line: Substring, isInType: Bool) -> Substring? {
        // Most lines are none, which the expressions take long to find out.
        guard self.types.contains(where: line.hasBytes) else { return nil }
        if isInType {
            let made = /(?: {4}| {8})(?:@?[a-zA-Z]+(?:\([a-z]+\))? )*(?:var|let) (\w+) = \[?(\w+)\]?\(.*/
            if let match = line.wholeMatch(of: made), self.types.contains(String(match.2)) { return match.1 }
        }
        let declared = /(?: {4}| {8})(?:@?[a-zA-Z]+(?:\([a-z]+\))? )*(?:var|let) (\w+): ([^={]*)(?:= .*)?/
        guard let match = line.wholeMatch(of: declared),
            match.2.matches(of: /\w+/).contains(where: { self.types.contains(String($0.output)) })
        else { return nil }
        // Not closures, and not local constants whose value follows.
        return line.contains("->") || line.hasSuffix("=") ? nil : match.1
    }

    /// Whether a line begins a type that is nested in another.
    private static func beginsType(_ line: Substring) -> Bool {
        guard line.hasSuffix("{") else { return false }
        let beginning = #/ {4}(?:@?[a-zA-Z]+(?:\([a-z]+\))? )*(?:struct|class|enum|actor) .*\{/#
        return line.wholeMatch(of: beginning) != nil
    }

    private static func source(_ path: String) throws -> String {
        try String(contentsOf: packageFolder.appendingPathComponent("Sources/" + path), encoding: .utf8)
    }

    private static func sources() throws -> [(path: String, text: String)] {
        try self.modules.flatMap { module in
            let folder = packageFolder.appendingPathComponent("Sources/\(module)")
            let paths = FileManager.default.enumerator(atPath: folder.path)?.compactMap { $0 as? String } ?? []
            return try paths.filter { $0.hasSuffix(".swift") && !$0.contains(".docc/") }.map { path in
                (path: "\(module)/\(path)", text: try self.source("\(module)/\(path)"))
            }
        }
    }

    private static let found = Result { try findProperties() }

    private func properties() throws -> Set<String> { try Self.found.get() }

    private static func findProperties() throws -> Set<String> {
        var found: Set<String> = []
        for (path, text) in try self.sources() {
            let file = URL(fileURLWithPath: path).deletingPathExtension().lastPathComponent
            var isInNested = false
            for line in text.split(separator: "\n") where line.hasPrefix("    ") {
                let isOuter = !line.hasPrefix("     ")
                if isOuter { isInNested = self.beginsType(line) }
                guard let name = self.property(line, isInType: isOuter || isInNested) else { continue }
                found.insert("\(file).\(name)")
            }
        }
        return found
    }

    @Test func everyPropertyThatHasBytesSaysWhyItPinsNoRead() throws {
        let found = try self.properties()
        #expect(found.count > 50)
        for name in found.subtracting(Self.reasons.keys).sorted() {
            Issue.record("\(name) has bytes: say in this list whether they are detached, and where")
        }
        for name in Set(Self.reasons.keys).subtracting(found).sorted() {
            Issue.record("there is no \(name) any more")
        }
    }

    @Test func everyFileThatIsSaidToDetachDoes() throws {
        for (name, reason) in Self.reasons {
            guard case .detached(let path) = reason else { continue }
            let text = try Self.source(path)
            let detaches = text.contains(/\.detached|storageCapacity|\.isLargeSlice|\.owned\(\)|\.own\(\)|OwnedBytes\(/)
            #expect(detaches, "\(name): \(path) detaches nothing")
        }
    }

    @Test func everyDecoderSaysWhatItHoldsAndEveryBeginningHasItsLimit() throws {
        let sources = try Self.sources()
        for (name, reason) in Self.reasons {
            let said: String
            switch reason {
            case .decoder: said = "var heldBytes: Int"
            case .beginning(let limit): said = "static let \(limit) = "
            case .owned, .detached, .own, .passing, .application, .unit: continue
            }
            let file = name.prefix { $0 != "." }
            let texts = sources.filter { $0.path.hasSuffix("/\(file).swift") }.map(\.text)
            #expect(texts.contains { $0.contains(said) }, "\(name): \(file) has no \(said)")
        }
    }

    /// The attack of `PinnedSliceTests` runs for each keeper.
    @Test func everyPropertyOfAServerThatKeepsReceivedBytesIsAttacked() throws {
        let attacked = Set(Keeper.allCases.flatMap(\.properties))
        for name in attacked.subtracting(try self.properties()) { Issue.record("there is no \(name) any more") }
        for (name, reason) in Self.reasons {
            guard case .detached(let path) = reason, path.hasPrefix("HHSocketServer/") else { continue }
            #expect(attacked.contains(name), "\(name) keeps bytes of clients: name it in Keeper, and attack it")
        }
    }

    /// Bytes are lent where they become the application's, or where the call that they are passed to ends with them.
    @Test func bytesAreLentByFewFiles() throws {
        let lending = try Self.sources().filter { !$0.path.hasPrefix("HHSocketLink/Wire/") }
            .filter { $0.text.hasBytes(of: ".lend()") }
            .map { (path: $0.path, count: $0.text.matches(of: /\.lend\(\)/).count) }
        let expected = [
            "HHSocket/Frames/RawSession.swift": 2, "HHSocketRPC/Calls/CallEngine.swift": 1,
            "HHSocketRPC/Links/ClientConnection.swift": 2, "HHSocketRPC/Pushes/PushCenter.swift": 1,
            "HHSocketRPC/Tasks/SocketResponse.swift": 1, "HHSocketServer/Session/FrameSession.swift": 2,
            "HHSocketServer/Session/RequestGate.swift": 1,
        ]
        #expect(Dictionary(uniqueKeysWithValues: lending.map { ($0.path, $0.count) }) == expected)
    }

    @Test func aPropertyIsReported() {
        for (line, name) in [
            ("    private var held: [ByteBuffer] = []", "held"),
            ("        package private(set) var payload: ByteBuffer", "payload"),
            ("    @usableFromInline var buffer: ByteBuffer", "buffer"),
            ("    let frame: Frame?", "frame"),
            ("    private var input = ByteBuffer()", "input"),
            ("    private(set) var body = ByteBuffer()", "body"),
            ("    @usableFromInline var partial = ByteBuffer()", "partial"),
            ("        var ping = OwnedBytes(made: bytes)", "ping"),
            ("    private var frames = [Frame]()", "frames"),
            ("    var length: Int { self.frame.payload.readableBytes }", nil),
            ("    var isFull: Bool { self.bytes > 0 }", nil),
            ("    let make: (Frame) -> Void", nil),
            ("    let link: Link<FrameLanguage>", nil),
            ("    private var hash = SHA256()", nil),
            ("    private let limit = ByteBuffer.self", nil),
        ] as [(Substring, Substring?)] {
            #expect(Self.property(line, isInType: true) == name, "\(line)")
        }
        #expect(Self.property("        var output = ByteBuffer()", isInType: false) == nil)
        #expect(Self.property("        let frame: Frame?", isInType: false) == "frame")
    }

    @Test func aNestedTypeIsTold() {
        for line in ["    private struct Unfinished {", "    final class Slot: Sendable {", "    enum State {"] {
            #expect(Self.beginsType(Substring(line)), "\(line)")
        }
        for line in ["    func take() {", "    private let state: State", "    ) {", "        struct Inner {"] {
            #expect(!Self.beginsType(Substring(line)), "\(line)")
        }
    }
}
