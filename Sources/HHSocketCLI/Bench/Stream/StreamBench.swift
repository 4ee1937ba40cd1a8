// SPDX-License-Identifier: Apache-2.0
import Atomics
import HHSocket
import HHSocketRPC
import NIOCore
import NIOPosix

/// Measures streams to and from a server.
struct StreamBench: Sendable {
    let parameters: EchoParameters
    let direction: StreamDirection

    /// The time that a stream may take to end after the measurement, in seconds.
    private static let patience = 30.0

    /// Connects, streams, and closes the connections. If the Swift task is cancelled the result covers the measurement
    /// so far.
    ///
    /// - Parameter showsProgress: Whether a line on stderr shows the progress.
    /// - Throws: ``EchoFailure`` if a stream failed or was not as it should be, or nothing was measured.
    func run(showsProgress: Bool) async throws -> StreamResult {
        // They end with the process.
        let group = MultiThreadedEventLoopGroup(numberOfThreads: self.parameters.threads)
        let clients = (0..<self.parameters.connections).map { _ in self.client(on: group.next()) }
        let result: Result<StreamResult, any Error> = await .of {
            try await self.measure(clients, showsProgress: showsProgress)
        }
        for client in clients { await client.close() }
        return try result.mapError { ($0 as? SocketError).map { EchoFailure($0) } ?? $0 }.get()
    }

    private func client(on eventLoop: any EventLoop) -> SocketClient {
        var configuration = SocketClient.Configuration(servers: [self.parameters.server])
        configuration.socket.wireFormat = self.parameters.format
        configuration.socket.header = self.parameters.header
        configuration.socket.eventLoopGroup = eventLoop
        var policy = StreamPolicy()
        if let window = self.parameters.window {
            policy.streamWindow = window
            policy.connectionWindow = max(policy.connectionWindow, window)
        }
        configuration.streams = policy
        // The server's items would be easy to compress.
        configuration.hello = HelloPolicy(features: [.metadata])
        return SocketClient(configuration: configuration)
    }

    private func measure(_ clients: [SocketClient], showsProgress: Bool) async throws -> StreamResult {
        let isOver = ManagedAtomic(false)
        var filler = Filler(seed: 2_463_534_242)
        let item = filler.bytes(self.parameters.body)
        let timeout = Duration.seconds(self.parameters.warmup + self.parameters.seconds + Self.patience)
        let streams = clients.flatMap { client in
            (0..<self.parameters.inFlight).map { _ in
                MeasuredStream(client, direction: self.direction, item: item, timeout: timeout, isOver: isOver)
            }
        }
        for (index, client) in clients.enumerated() {
            client.connect(attempts: 1)
            try await streams[index * self.parameters.inFlight].check()
        }
        let window = MeasuredWindow(
            origin: Uptime.now,
            warmup: self.parameters.warmup,
            seconds: self.parameters.seconds
        )
        @Sendable func count() -> Int { streams.reduce(0) { $0 + $1.counter.value } }
        let calls = CallsBeside(self.parameters, window)
        let measured = try await LiveLine.shown(showsProgress, window: window, unit: "items", count: count) {
            try await self.run(streams, with: calls, of: clients, in: window, isOver: isOver, count: count)
        }
        guard let sample = measured.sample, sample.seconds > 0 else {
            throw EchoFailure("interrupted before anything was measured")
        }
        return StreamResult(
            parameters: self.parameters,
            direction: self.direction,
            sample: sample,
            calls: measured.calls
        )
    }

    /// The parts of a result, each measured by its own task.
    private struct Measured {
        var sample: StreamSample?
        var calls: EchoTally?

        mutating func add(_ other: Measured) {
            if let sample = other.sample { self.sample = sample }
            guard let calls = other.calls else { return }
            if self.calls == nil { self.calls = calls } else { self.calls?.add(calls) }
        }
    }

    /// Runs all streams until the window has ended, or the Swift task is cancelled. The first failure cancels the
    /// others.
    private func run(
        _ streams: [MeasuredStream],
        with calls: CallsBeside?,
        of clients: [SocketClient],
        in window: MeasuredWindow,
        isOver: ManagedAtomic<Bool>,
        count: @escaping @Sendable () -> Int
    ) async throws -> Measured {
        try await withThrowingTaskGroup(of: Measured.self) { group in
            for (index, stream) in streams.enumerated() {
                self.add(stream, of: clients[index / self.parameters.inFlight], isOver, to: &group)
            }
            if let calls {
                for (index, client) in clients.enumerated() {
                    group.addTask { Measured(calls: try await calls.run(on: client, number: index)) }
                }
            }
            group.addTask {
                let sample = await StreamSample.measured(
                    in: window,
                    serverPID: self.parameters.serverPID,
                    count: count
                )
                isOver.store(true, ordering: .relaxed)
                return Measured(sample: sample)
            }
            var measured = Measured()
            for try await result in group { measured.add(result) }
            return measured
        }
    }

    private func add(
        _ stream: MeasuredStream,
        of client: SocketClient,
        _ isOver: ManagedAtomic<Bool>,
        to group: inout ThrowingTaskGroup<Measured, any Error>
    ) {
        let work: @Sendable () async throws -> Measured = {
            do {
                try await stream.run()
            } catch {
                // Cancelled by the awaiting task, or because another stream has failed.
                guard !Task.isCancelled else { return Measured() }
                throw error
            }
            return Measured()
        }
        if self.parameters.executor == .socket, #available(macOS 15, *) {
            group.addTask(executorPreference: client.executor, operation: work)
        } else {
            group.addTask(operation: work)
        }
    }
}
