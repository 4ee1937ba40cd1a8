import HHSocket
import NIOCore
import NIOPosix

/// A peer that does what a test tells it, in frames or in raw bytes, on a port of its own. It knows no rules, and lives as
/// long as the tests run.
package final class RawServer: Sendable {
    /// One accepted connection.
    package struct Connection: Sendable {
        /// The requests that come, until the client closes. One stream: a second loop goes on where the first stopped.
        package let requests: AsyncThrowingStream<Frame, any Error>
        private let channel: any Channel
        private let outbound: NIOAsyncChannelOutboundWriter<ByteBuffer>

        fileprivate init(
            inbound: NIOAsyncChannelInboundStream<ByteBuffer>,
            outbound: NIOAsyncChannelOutboundWriter<ByteBuffer>,
            channel: any Channel
        ) {
            self.channel = channel
            self.outbound = outbound
            self.requests = AsyncThrowingStream { continuation in
                let reader = Task {
                    var decoder = FrameDecoder(direction: .request)
                    do {
                        for try await bytes in inbound {
                            decoder.append(bytes)
                            while let output = try decoder.next() {
                                if case .frame(let frame) = output { continuation.yield(frame) }
                            }
                        }
                        continuation.finish()
                    } catch {
                        continuation.finish(throwing: error)
                    }
                }
                continuation.onTermination = { _ in reader.cancel() }
            }
        }

        package func send(_ frames: Frame...) async throws {
            try await self.send(frames)
        }

        package func send(_ frames: [Frame]) async throws {
            var bytes = ByteBuffer()
            for frame in frames { FrameEncoder(direction: .response).encode(frame, into: &bytes) }
            try await self.outbound.write(bytes)
        }

        package func sendRaw(_ bytes: ByteBuffer) async throws {
            try await self.outbound.write(bytes)
        }

        /// Reads no more, and neither answers nor closes.
        package func stopReading() async throws {
            try await self.channel.setOption(.autoRead, value: false).get()
            try await Task.sleep(for: .seconds(3_600))
        }

        /// Answers every request with its own payload.
        package func echo() async throws {
            for try await request in self.requests where request.type >= 16 {
                try await self.send(request.echo)
            }
        }
    }

    /// Where every such server runs.
    package static var group: MultiThreadedEventLoopGroup { .singletonMultiThreadedEventLoopGroup }

    package let endpoint: Endpoint

    /// - Parameter serve: Run for each connection, numbered from 0; the connection is closed when it returns.
    package init(port: Int = 0, serve: @escaping @Sendable (Connection, Int) async throws -> Void) async throws {
        let server = try await ServerBootstrap(group: Self.group)
            .serverChannelOption(.socketOption(.so_reuseaddr), value: 1)
            .bind(host: "127.0.0.1", port: port) { channel in
                channel.eventLoop.makeCompletedFuture {
                    try NIOAsyncChannel<ByteBuffer, ByteBuffer>(wrappingChannelSynchronously: channel)
                }
            }
        self.endpoint = Endpoint(host: "127.0.0.1", port: server.channel.localAddress?.port ?? 0)
        Task {
            try? await withThrowingDiscardingTaskGroup { group in
                try await server.executeThenClose { connections in
                    var number = 0
                    for try await connection in connections {
                        let current = number
                        number += 1
                        group.addTask {
                            try? await connection.executeThenClose { inbound, outbound in
                                try await serve(
                                    Connection(inbound: inbound, outbound: outbound, channel: connection.channel),
                                    current
                                )
                            }
                        }
                    }
                }
            }
        }
    }

    /// A port where nothing listens.
    package static func unusedEndpoint() async throws -> Endpoint {
        let channel = try await ServerBootstrap(group: Self.group)
            .bind(host: "127.0.0.1", port: 0).get()
        let port = channel.localAddress?.port ?? 0
        try await channel.close()
        return Endpoint(host: "127.0.0.1", port: port)
    }
}

extension Frame {
    /// The answer with the same payload.
    package var echo: Frame { Frame(type: self.type, serial: self.serial, status: .ok, payload: self.payload) }
}
