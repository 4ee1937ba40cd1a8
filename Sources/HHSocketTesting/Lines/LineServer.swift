// SPDX-License-Identifier: Apache-2.0
public import HHSocket

/// A server of lines for tests, over real TCP on 127.0.0.1, which does what the test specifies, valid or not.
///
/// ```swift
/// let server = try await LineServer(.echo)
/// server.on("how are you?", .line("fine"))
///
/// let link = LineLink(configuration: .init(servers: [server.endpoint]))
/// link.connect()
/// try await link.send("how are you?")
/// #expect(try await server.received(1)[0].text == "how are you?")
/// await server.perform(.line("news"))
/// ```
///
/// A fault that occurs once:
///
/// ```swift
/// server.once(.line("never whole").cut(after: 5).then(.disconnect))
/// ```
///
/// ``MockPeer`` lists its functions, and ``MockReaction`` its reactions. The server ends with ``MockPeer/shutdown()``,
/// or when the last reference to it is released.
public typealias LineServer = MockPeer<LineWire>

extension MockPeer where Wire == LineWire {
    /// Creates a server that listens.
    ///
    /// - Parameters:
    ///   - reaction: The reaction to lines without a rule. Nothing by default; `LineServer(.echo)` is an echo server.
    ///   - delimiter: The bytes between two lines; LF by default.
    ///   - port: The TCP port on 127.0.0.1; 0, the default, picks a free one.
    ///   - seed: The seed of ``MockReaction/oneOf(_:)`` and ``MockReleaseOrder/shuffled``; 0 by default.
    ///   - clock: The clock of delays; with a ``VirtualClock`` they wait only for the test. Real time by default.
    /// - Throws: NIO's error if the port is in use.
    public convenience init(
        _ reaction: Reaction = .drop,
        delimiter: LineDelimiter = .lf,
        port: Int = 0,
        seed: UInt64 = 0,
        clock: some Clock<Duration> = ContinuousClock()
    ) async throws {
        let mock = MockPort(seed: seed, clock: clock)
        try await self.init(LineWire(delimiter: delimiter), on: mock, port: port, other: reaction) {
            LineSession(parts: $0, port: $1)
        }
    }

    /// Returns the first `count` lines, waiting for those that have not arrived yet.
    ///
    /// - Parameters:
    ///   - count: The number of lines to wait for.
    ///   - number: The number of the connection; nil, the default, counts all connections.
    ///   - time: The time to wait; 60 s by default.
    ///
    /// - Throws: ``NothingHappened`` if they do not arrive in time; it describes what arrived.
    @discardableResult
    public func received(
        _ count: Int,
        onConnection number: Int? = nil,
        within time: Duration = .seconds(60)
    ) async throws -> [Received] {
        try await self.parts.received.wait(count, within: time, "\(count) lines") {
            number == nil || $0.connection == number
        }
    }
}
