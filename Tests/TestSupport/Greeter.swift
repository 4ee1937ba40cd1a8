// SPDX-License-Identifier: Apache-2.0
package import HHSocket
import HHSocketMessage
package import HHSocketServer
package import HHSocketTesting
package import NIOCore
import Testing

/// A client on the level of frames.
package struct Greeter {
    package let client: HostileClient

    package init(_ server: SocketServer) async throws {
        self.client = try await HostileClient.connect(to: server.address)
    }

    /// - Returns: The reply's status and content.
    package func greet(_ hello: WireHello = .all) async throws -> (Status, WireHelloReply) {
        await self.client.perform(
            .frame(Frame(type: FrameType.hello, serial: FrameSerial.hello, payload: try ByteBuffer(message: hello)))
        )
        let frame = try await self.client.response()
        #expect((frame.type, frame.serial) == (FrameType.hello, FrameSerial.hello))
        return (frame.status, (try? frame.payload.message()) ?? WireHelloReply())
    }

    package func call(
        _ type: UInt32,
        serial: UInt32 = 50,
        _ body: ByteBuffer = ByteBuffer(),
        _ metadata: WireMetadata? = nil,
        compression: CompressionPolicy? = nil
    ) async throws {
        let sealed = try Envelope.seal(type: type, body: body, metadata: metadata, compression: compression)
        await self.client.perform(.frame(Frame(type: sealed.type, serial: serial, payload: sealed.payload)))
    }

    /// - Returns: The answer, and the metadata of its envelope.
    package func answer() async throws -> (frame: Frame, metadata: [String: String]) {
        var frame = try await self.client.response()
        let envelope = try Envelope.open(
            type: frame.type,
            payload: frame.payload,
            agreedFlags: FrameType.metadataFlag | FrameType.compressionFlag,
            maximumBodyLength: 1 << 24
        )
        frame.type = envelope.type
        frame.payload = envelope.body
        return (frame, envelope.metadata?.values ?? [:])
    }
}

extension WireHello {
    package static var all: WireHello {
        var hello = WireHello()
        hello.version = 1
        hello.features = ["metadata", "compression", "idempotency"]
        return hello
    }
}

extension WireMetadata {
    package init(_ values: [String: String] = [:], deadline: UInt64? = nil, key: String = "") {
        self.init()
        self.values = values
        if let deadline { self.deadline = deadline }
        self.idempotencyKey = key
    }
}
