// SPDX-License-Identifier: Apache-2.0
import HHSocket
import NIOPosix

/// Measures the messages of links to a server that sends them back.
struct MessageBench<Link: BenchedLink>: Sendable {
    /// Connects, exchanges messages, and closes the connections. If the Swift task is cancelled the result covers the
    /// measurement so far.
    ///
    /// - Parameter showsProgress: Whether a line on stderr shows the progress.
    /// - Throws: ``EchoFailure`` if a connection ended, what came back was no echo, or nothing was measured.
    static func run(_ parameters: EchoParameters, showsProgress: Bool) async throws -> EchoResult {
        let body = EchoBody(length: parameters.body)
        // They end with the process.
        let group = MultiThreadedEventLoopGroup(numberOfThreads: parameters.threads)
        let connections = try (0..<parameters.connections).map { _ in
            let eventLoop = group.next()
            var socket = SocketConfiguration(servers: [parameters.server])
            socket.eventLoopGroup = eventLoop
            socket.callbackQueue = .socketThread
            socket.backoff.maximumRounds = 1
            // As many as requested may exceed the default limit.
            socket.maximumQueuedBytes = max(socket.maximumQueuedBytes, 2 * parameters.inFlight * (body.length + 16))
            let link = try Link(socket, sending: parameters.inFlight, messagesOf: body.length)
            return EchoConnection(link, on: eventLoop, sending: body)
        }
        let result: Result<EchoResult, any Error> = await .of {
            for connection in connections { try await connection.open() }
            let measurement = EchoMeasurement(parameters)
            let loops = connections.map {
                MessageLoop($0, inFlight: parameters.inFlight, EchoTally(.closedLoop, window: measurement.window))
            }
            return try await measurement.run(loops, showsProgress: showsProgress)
        }
        for connection in connections { await connection.close() }
        return try result.get()
    }
}

/// A link that the bench can make.
protocol BenchedLink: ExchangedLink {
    init(_ socket: SocketConfiguration, sending count: Int, messagesOf length: Int) throws
}

extension WebSocketLink: BenchedLink {
    convenience init(_ socket: SocketConfiguration, sending count: Int, messagesOf length: Int) throws {
        var configuration = Configuration(socket: socket)
        configuration.maximumMessageLength = max(configuration.maximumMessageLength, length)
        configuration.maximumWaitingMessages = max(configuration.maximumWaitingMessages, count)
        self.init(configuration: configuration)
    }
}

extension LineLink: BenchedLink {
    convenience init(_ socket: SocketConfiguration, sending count: Int, messagesOf length: Int) throws {
        var configuration = Configuration(socket: socket)
        configuration.maximumLineLength = max(configuration.maximumLineLength, length)
        configuration.maximumWaitingLines = max(configuration.maximumWaitingLines, count)
        self.init(configuration: configuration)
    }
}
