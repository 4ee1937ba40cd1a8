// SPDX-License-Identifier: Apache-2.0
#if os(Linux)
import Foundation
import HHSocket
import HHSocketTesting
import NIOConcurrencyHelpers
import NIOCore
import TestSupport
import Testing

/// What a writer costs whose peer does not read, in a process of its own, whose memory nobody else uses.
@Suite(.tags(.io), .serialized, .timeLimit(.minutes(5))) struct WriterMemoryTests {
    private static let frameLength = 64 << 10
    private static let offered = 192 << 20

    /// How much the process has grown when the writer has either had all its frames taken or waits.
    private static func growth(highWaterMark: Int) async throws -> (bytes: Int, isWaiting: Bool) {
        let server = try await MockServer(.drop)
        server.onConnect(.stopReading)
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
                // Written to, or the system would not have to give the memory.
                let payload = ByteBuffer(repeating: UInt8(truncatingIfNeeded: serial), count: Self.frameLength)
                try await socket.send(Frame(type: 16, serial: serial, payload: payload))
                sent.withLockedValue { $0 += 1 }
            }
        }
        defer { writer.cancel() }
        // It waits when nothing has been taken for a while. A machine that stands still for so long makes the growth
        // smaller, not larger.
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
            // The mark and a read buffer are 1.25 MiB; the rest is what threads and allocators keep.
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
