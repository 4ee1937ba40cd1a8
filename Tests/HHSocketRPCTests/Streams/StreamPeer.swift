// SPDX-License-Identifier: Apache-2.0
import HHSocket
import HHSocketTesting
import NIOCore
import TestSupport
import Testing

@testable import HHSocketRPC

/// A client with streams, and a server whose frames the test makes.
struct StreamPeer {
    static let features: Set<ProtocolFeature> = [.metadata, .compression, .streams]
    /// The type of the streams.
    static let type: UInt32 = 1_012

    let server: MockServer
    let client: SocketClient

    /// - Parameters:
    ///   - windows: The amounts that the server is ready to receive.
    ///   - maximumStreams: The number of streams that the client may have open.
    ///   - policy: The client's policy.
    init(
        windows: StreamWindows = StreamWindows(),
        maximumStreams: UInt32 = 100,
        policy: StreamPolicy? = StreamPolicy(),
        accepting features: Set<ProtocolFeature> = StreamPeer.features,
        configure: (inout SocketClient.Configuration) -> Void = { _ in }
    ) async throws {
        let server = try await MockServer(.drop)
        server.on(101, .echo)
        let terms = StreamPolicy(
            streamWindow: Int(windows.stream),
            connectionWindow: Int(windows.connection),
            maximumStreams: Int(maximumStreams)
        )
        server.acceptHello(features: features, streams: features.contains(.streams) ? terms : nil)
        // The test grants credit itself.
        server.on(Self.type, .stall)
        self.server = server
        self.client = SocketClient.connecting(to: server.endpoint) {
            $0.streams = policy
            configure(&$0)
        }
    }

    func open(
        _ kind: StreamKind = .bidirectional,
        body: String = "",
        change: (inout SocketRequest) -> Void = { _ in }
    ) async throws -> (stream: SocketStream, serial: UInt32) {
        let before = self.openings.count
        var request = SocketRequest(type: Self.type, body: body)
        change(&request)
        let stream = try await self.client.stream(for: request, kind: kind)
        return (stream, try await self.opening(before).serial)
    }

    private var openings: [MockServer.Received] { self.server.received.filter { $0.type == Self.type } }

    /// Waits for the opening with this number, counted from 0.
    func opening(_ number: Int) async throws -> MockServer.Received {
        try await eventually("opening \(number)") {
            let openings = self.openings
            return openings.count > number ? openings[number] : nil
        }
    }

    /// Returns the received frames of a type for a serial.
    func frames(_ type: UInt32, _ serial: UInt32) -> [Frame] {
        self.server.received.map(\.frame).filter { $0.type == type && $0.serial == serial }
    }

    /// The last received credit of the stream with this serial; nil if there is none.
    func lastCredit(_ serial: UInt32) -> UInt64? {
        self.frames(FrameType.credit, serial).last.flatMap { StreamFrames.credit(in: $0.payload) }
    }

    /// Waits for the first `count` frames of a type for a serial.
    func frames(_ count: Int, _ type: UInt32, _ serial: UInt32) async throws -> [Frame] {
        try await eventually("\(count) frames of type \(type)") {
            let frames = self.frames(type, serial)
            return frames.count >= count ? frames : nil
        }
    }

    /// Sends frames in one write.
    func send(_ frames: Frame..., onConnection number: Int = 0) async throws {
        try await self.server.connection(number).perform(.glued(frames.map { .frame($0) }))
    }

    /// Waits until the client has received everything sent to it, and its own frames have arrived.
    func fence() async throws {
        _ = try await self.client.data(for: SocketRequest(type: 101, body: "fence"))
        _ = try await self.client.data(for: SocketRequest(type: 101, body: "fence"))
    }

    /// The frame of an item from the server.
    static func item(_ serial: UInt32, _ body: String, flags: UInt32 = 0) -> Frame {
        Frame(type: Self.type | flags, serial: serial, status: .partial, payload: ByteBuffer(string: body))
    }

    /// The frame of an item whose payload has this length.
    static func item(_ serial: UInt32, length: Int) -> Frame {
        Self.item(serial, String(repeating: "x", count: length))
    }

    /// The frame that ends a stream.
    static func end(_ serial: UInt32, _ status: Status = .ok, _ body: String = "") -> Frame {
        Frame(type: Self.type, serial: serial, status: status, payload: ByteBuffer(string: body))
    }
}

extension SocketStream {
    /// The texts of the next `count` items.
    func texts(_ count: Int) async throws -> [String] {
        let items = self.items
        return try await withDeadline("\(count) items") {
            var texts: [String] = []
            var iterator = items.makeAsyncIterator()
            while texts.count < count, let item = try await iterator.next() { texts.append(String(buffer: item)) }
            return texts
        }
    }

    /// The texts of all items, and the error that ends them.
    func allTexts() async throws -> (texts: [String], error: SocketError?) {
        let items = self.items
        return try await withDeadline("the end of the items") {
            var texts: [String] = []
            do throws(SocketError) {
                for try await item in items { texts.append(String(buffer: item)) }
            } catch {
                return (texts, error)
            }
            return (texts, nil)
        }
    }

    func send(_ text: String) async throws(SocketError) {
        try await self.send(ByteBuffer(string: text))
    }
}
