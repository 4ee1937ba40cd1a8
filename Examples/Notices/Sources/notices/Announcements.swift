import HHSocketServer

/// Pushes notices to all clients, one after the other.
struct Announcements: Sendable {
    /// A service with the server that pushes.
    struct Sender: Service {
        let announcements: Announcements
        let server: SocketServer

        func run() async throws {
            for await notice in self.announcements.notices.cancelOnGracefulShutdown() {
                await self.server.push(type: 2001, body: ByteBuffer(string: notice))
            }
        }
    }

    private let notices: AsyncStream<String>
    private let continuation: AsyncStream<String>.Continuation

    init() {
        (self.notices, self.continuation) = AsyncStream.makeStream(bufferingPolicy: .bufferingNewest(1_000))
    }

    func send(_ notice: String) { self.continuation.yield(notice) }
}
