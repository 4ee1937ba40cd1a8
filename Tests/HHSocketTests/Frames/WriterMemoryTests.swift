// SPDX-License-Identifier: Apache-2.0
#if os(Linux)
import Foundation
import HHSocket
import HHSocketTesting
import NIOConcurrencyHelpers
import NIOCore
import TestSupport
import Testing

/// The memory of a writer whose peer does not read, in a separate process that does nothing else.
@Suite(.tags(.io), .serialized, .timeLimit(.minutes(5))) struct WriterMemoryTests {
    private static let frameLength = 64 << 10
    private static let offered = 192 << 20

    /// The growth of the process once all frames of the writer were taken, or the writer waits.
    private static func growth(highWaterMark: Int) async throws -> (bytes: Int, isWaiting: Bool) {
        let server = try await MockServer(.drop)
        server.onOpen(.stopReading)
        var configuration = SocketConfiguration(servers: [server.endpoint])
        configuration.writePolicy = WritePolicy(highWaterMark: highWaterMark)
        configuration.maximumQueuedBytes = .max
        let socket = Socket(configuration: configuration)
        socket.connect()
        try await server.connection(0)
        try await eventually("ready") { if case .ready = socket.state { true } else { false } }
        let before = residentBytes()
        let sent = NIOLockedValueBox(0)
        let total = Self.offered / Self.frameLength
        let writer = Task {
            for serial in 0..<UInt32(total) {
                // The memory is written to; otherwise the system would not have to provide it.
                let payload = ByteBuffer(repeating: UInt8(truncatingIfNeeded: serial), count: Self.frameLength)
                try await socket.send(Frame(type: 16, serial: serial, payload: payload))
                sent.withLockedValue { $0 += 1 }
            }
        }
        defer { writer.cancel() }
        // The writer waits when nothing has been taken for a while. A machine that stalls for that long makes the
        // growth smaller, not larger.
        var last = -1
        var quiet = 0
        while quiet < 100, last < total {
            try await Task.sleep(for: .milliseconds(5))
            let now = sent.withLockedValue { $0 }
            quiet = now == last ? quiet + 1 : 0
            last = now
        }
        return (residentBytes() - before, last < total)
    }

    @Test func processOfAWriterFasterThanItsPeerHardlyGrows() async throws {
        await #expect(processExitsWith: .success) {
            let bounded = try await Self.growth(highWaterMark: 1 << 20)
            #expect(bounded.isWaiting)
            // The mark and a read buffer are 1.25 MiB; threads and allocators keep the rest.
            #expect(bounded.bytes < 16 << 20, "\(bounded.bytes >> 20) MiB")
        }
    }

    @Test func itGrowsByAllThatIsOfferedWhereTheMarkIsOutOfReach() async throws {
        await #expect(processExitsWith: .success) {
            let unbounded = try await Self.growth(highWaterMark: .max)
            #expect(!unbounded.isWaiting)
            #expect(unbounded.bytes > 128 << 20, "\(unbounded.bytes >> 20) MiB")
        }
    }
}
#endif
