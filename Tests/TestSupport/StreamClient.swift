// SPDX-License-Identifier: Apache-2.0
import Foundation
package import HHSocket
import HHSocketMessage
package import HHSocketServer
package import HHSocketTesting
package import NIOCore
package import Testing

/// A client of streams on the level of frames: a test keeps the windows itself.
package struct StreamClient {
    package let client: HostileClient
    package let reply: WireHelloReply

    /// - Parameters:
    ///   - window: The amount that it is ready to receive on a stream; 0 for the default.
    ///   - connectionWindow: The amount that it is ready to receive on all streams together; 0 for the default.
    package init(
        _ server: SocketServer,
        features: [String] = ["metadata", "streams"],
        window: UInt32 = 0,
        connectionWindow: UInt32 = 0,
        token: String = ""
    ) async throws {
        let greeter = try await Greeter(server)
        var hello = WireHello()
        hello.version = 1
        hello.features = features
        hello.streamWindow = window
        hello.connectionWindow = connectionWindow
        hello.sessionToken = Data(token.utf8)
        let (status, reply) = try await greeter.greet(hello)
        #expect(status == .ok)
        self.client = greeter.client
        self.reply = reply
    }

    // MARK: What it sends

    package func send(_ type: UInt32, _ serial: UInt32, _ body: ByteBuffer = ByteBuffer()) async {
        await self.client.perform(.request(type, serial: serial, body))
    }

    package func open(
        _ type: UInt32,
        _ serial: UInt32 = 50,
        _ body: String = "",
        _ metadata: WireMetadata? = nil
    ) async throws {
        let sealed = try Envelope.seal(
            type: type,
            body: ByteBuffer(string: body),
            metadata: metadata,
            compression: nil
        )
        await self.send(sealed.type, serial, sealed.payload)
    }

    package func item(_ serial: UInt32 = 50, _ body: String) async {
        await self.send(FrameType.item, serial, ByteBuffer(string: body))
    }

    package func item(_ serial: UInt32 = 50, length: Int) async {
        await self.send(FrameType.item, serial, ByteBuffer(repeating: 120, count: length))
    }

    /// Sends a piece, which is not the last.
    package func piece(_ type: UInt32, _ serial: UInt32 = 50, length: Int) async {
        await self.send(type | FrameType.continuesFlag, serial, ByteBuffer(repeating: 120, count: length))
    }

    package func end(_ serial: UInt32 = 50) async { await self.send(FrameType.end, serial) }

    package func credit(_ serial: UInt32 = 50, _ credit: UInt64) async {
        await self.send(FrameType.credit, serial, ByteBuffer(integer: credit))
    }

    // MARK: What it receives

    package func next() async throws -> Frame { try await self.client.response() }

    /// Reads the next frame that is not credit.
    package func answer() async throws -> Frame {
        while true {
            let frame = try await self.client.response()
            if frame.type != FrameType.credit { return frame }
        }
    }

    /// Reads the next frame with this serial that is not credit, and drops others.
    package func answer(to serial: UInt32) async throws -> Frame {
        while true {
            let frame = try await self.answer()
            if frame.serial == serial { return frame }
        }
    }

    /// Expects an item.
    package func expectItem(_ serial: UInt32 = 50, _ body: String, sourceLocation: SourceLocation = #_sourceLocation)
        async throws
    {
        let frame = try await self.answer()
        #expect(frame.status == .partial, sourceLocation: sourceLocation)
        #expect(frame.serial == serial, sourceLocation: sourceLocation)
        #expect(String(buffer: frame.payload) == body, sourceLocation: sourceLocation)
    }

    /// Expects the end of a stream.
    package func expectEnd(
        _ serial: UInt32 = 50,
        _ status: Status = .ok,
        _ body: String = "",
        sourceLocation: SourceLocation = #_sourceLocation
    ) async throws {
        let frame = try await self.answer()
        #expect(frame.status == status, sourceLocation: sourceLocation)
        #expect(frame.serial == serial, sourceLocation: sourceLocation)
        #expect(String(buffer: frame.payload) == body, sourceLocation: sourceLocation)
    }

    /// Expects the end of a stream, with metadata.
    package func expectTrailers(_ serial: UInt32, sourceLocation: SourceLocation = #_sourceLocation) async throws {
        let frame = try await self.answer()
        #expect((frame.serial, frame.status) == (serial, .ok), sourceLocation: sourceLocation)
    }

    /// Expects the server's go-away.
    package func expectGoAway(sourceLocation: SourceLocation = #_sourceLocation) async throws {
        let frame = try await self.answer()
        #expect(frame.type == FrameType.goAway, sourceLocation: sourceLocation)
    }
}

extension SocketServer {
    /// Waits until nothing is held or in flight.
    package func becomesIdle(_ fileID: String = #fileID, line: Int = #line) async throws {
        try await eventually("what is held is given back", within: .seconds(30), fileID: fileID, line: line) {
            self.requestsInFlight == 0 && self.bufferedBytes == 0
        }
    }
}
