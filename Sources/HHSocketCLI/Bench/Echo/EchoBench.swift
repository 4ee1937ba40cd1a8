// SPDX-License-Identifier: Apache-2.0
import HHSocket
import HHSocketRPC
import NIOCore
import NIOPosix

/// Measures calls to a server that echoes them.
struct EchoBench: Sendable {
    let parameters: EchoParameters
    private let body: EchoBody

    /// A client, and its thread.
    private struct Connection: Sendable {
        var client: SocketClient
        var eventLoop: any EventLoop
        var callbacks: CallbackQueue
    }

    init(_ parameters: EchoParameters) {
        self.parameters = parameters
        self.body = EchoBody(length: parameters.body, type: parameters.type)
    }

    /// Connects, makes the calls, and closes the connections. If the Swift task is cancelled the result covers the
    /// measurement so far.
    ///
    /// - Parameter showsProgress: Whether a line on stderr shows the progress.
    /// - Throws: ``EchoFailure`` if a call failed or was answered wrongly, or nothing was measured.
    func run(showsProgress: Bool) async throws -> EchoResult {
        // One thread for each connection, as clients have by default, unless they are to share some. They are passed
        // in, because schedules and interruptions reach the calls through them. They end with the process.
        let group = MultiThreadedEventLoopGroup(numberOfThreads: self.parameters.threads)
        let connections = (0..<self.parameters.connections).map { _ in self.connection(on: group.next()) }
        let result: Result<EchoResult, any Error> = await .of {
            try await self.measure(connections, showsProgress: showsProgress)
        }
        for connection in connections { await connection.client.close() }
        return try result.get()
    }

    private func connection(on eventLoop: any EventLoop) -> Connection {
        let callbacks = (self.parameters.callbacks ?? .inline).queue
        var configuration = SocketClient.Configuration(servers: [self.parameters.server])
        configuration.socket.wireFormat = self.parameters.format
        configuration.socket.header = self.parameters.header
        if self.parameters.hello {
            configuration.hello = HelloPolicy(features: [.metadata, .compression], isRequired: true)
        }
        if self.parameters.agreesOnStreams { configuration.streams = StreamPolicy() }
        configuration.socket.eventLoopGroup = eventLoop
        configuration.socket.callbackQueue = callbacks
        // The requested number of calls in flight may exceed the default limits.
        let inFlight = self.parameters.inFlight
        configuration.maximumInFlight = max(configuration.maximumInFlight, inFlight)
        let encoder = FrameEncoder(direction: .request, format: self.parameters.format)
        let bytes = inFlight * encoder.encodedLength(payloadLength: self.body.length)
        configuration.socket.maximumQueuedBytes = max(configuration.socket.maximumQueuedBytes, bytes)
        return Connection(
            client: SocketClient(configuration: configuration),
            eventLoop: eventLoop,
            callbacks: callbacks
        )
    }

    private func measure(_ connections: [Connection], showsProgress: Bool) async throws -> EchoResult {
        for connection in connections { try await self.connect(connection.client) }
        let origin = Uptime.now
        let window = MeasuredWindow(
            origin: origin,
            warmup: self.parameters.warmup,
            seconds: self.parameters.seconds
        )
        let loops = connections.enumerated().map { self.loop($1, number: $0, origin: origin, window: window) }
        async let cpu = CPUUse.measured(in: window, serverPID: self.parameters.serverPID)
        @Sendable func count() -> Int { loops.reduce(0) { $0 + $1.callsSoFar } }
        let tally = try await LiveLine.shown(showsProgress, window: window, unit: "calls", count: count) {
            try await self.run(loops, window)
        }
        guard tally.window.seconds > 0 else {
            throw EchoFailure("interrupted before anything was measured")
        }
        return EchoResult(
            parameters: self.parameters,
            tally: tally,
            cpu: await cpu,
            isInterrupted: tally.window != window
        )
    }

    /// Connects, and makes a first call.
    private func connect(_ client: SocketClient) async throws {
        client.connect(attempts: 1)
        var requests = RequestPair(self.body)
        var request = requests.next(0)
        if self.parameters.hello {
            // The call fails if these were not agreed on. The measured calls use neither.
            request.metadata = ["purpose": "bench"]
            request.compresses = true
        }
        let response: SocketResponse
        do throws(SocketError) {
            response = try await client.data(for: request)
        } catch {
            throw EchoFailure(error)
        }
        guard self.body.isEchoed(by: response.body, number: 0) else {
            throw EchoFailure(self.body.reason(about: response.body, number: 0))
        }
    }

    private func loop(
        _ connection: Connection,
        number: Int,
        origin: UInt64,
        window: MeasuredWindow
    ) -> any EchoLoop {
        let schedule = self.parameters.rate.map {
            StartSchedule(rate: $0, origin: origin, connection: number, of: self.parameters.connections)
        }
        let tally = EchoTally(schedule == nil ? .closedLoop : .schedule, window: window)
        func awaited(_ caller: some EchoCaller) -> any EchoLoop {
            AsyncLoop(
                client: connection.client,
                caller: caller,
                inFlight: self.parameters.inFlight,
                executor: self.parameters.executor ?? .global,
                tally: tally,
                schedule: schedule
            )
        }
        switch self.parameters.api {
        case .task, .dispatch:
            return TaskLoop(
                client: connection.client,
                makesTasks: self.parameters.api == .task,
                eventLoop: connection.eventLoop,
                callbacks: connection.callbacks,
                body: self.body,
                inFlight: self.parameters.inFlight,
                tally: tally,
                schedule: schedule
            )
        // Streams are measured by `StreamBench`.
        case .async, .stream: return awaited(BodyCaller(self.body))
        case .typed: return awaited(MessageCaller(length: self.parameters.body))
        }
    }

    /// Runs all loops at once. The first failure cancels the others.
    private func run(_ loops: [any EchoLoop], _ window: MeasuredWindow) async throws -> EchoTally {
        try await withThrowingTaskGroup(of: EchoTally.self) { group in
            for loop in loops { group.addTask { try await loop.run() } }
            var sum: EchoTally?
            for try await tally in group {
                if sum == nil { sum = tally } else { sum?.add(tally) }
            }
            return sum ?? EchoTally(.closedLoop, window: window)
        }
    }
}
