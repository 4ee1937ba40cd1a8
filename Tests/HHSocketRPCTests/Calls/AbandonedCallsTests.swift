// SPDX-License-Identifier: Apache-2.0
import Dispatch
import Foundation
import HHSocket
import HHSocketTesting
import NIOCore
import TestSupport
import Testing

@testable import HHSocketRPC

/// Counts the objects of a kind. Abandoned objects must be released in the end, not only appear to be.
private final class Witness: Sendable {
    static let alive = Watched(0)
    init() { Self.alive.withLockedValue { $0 += 1 } }
    deinit { Self.alive.withLockedValue { $0 -= 1 } }
}

private struct PassThrough: SocketInterceptor {
    func intercept(_ request: SocketRequest, next: Next) async throws -> SocketResponse { try await next(request) }
}

/// Calls from many threads at once, over real TCP, to a server that occasionally misbehaves in every way.
@Suite(.tags(.io), .serialized, .timeLimit(.minutes(10))) struct AbandonedCallsTests {
    /// The number of calls.
    private static let calls = scaled(20_000)

    /// A place in which a call can be abandoned.
    private enum Way: Int, CaseIterable {
        case neverResumed, cancelledBeforeResume, resumed, cancelledAtOnce, cancelledLater, cancelledByTheTask,
            timedOut,
            cancelledByIdentifier, progressCancelled, retried, withQueue, reprioritized
    }

    private func faultyServer() async throws -> MockServer {
        let server = try await MockServer(.echo, seed: 42)
        server.on(
            101,
            .oneOf(
                .echo,
                .echo,
                .echo,
                .echo,
                .echo,
                .echo,
                .drop,
                .status(.overloaded),
                .status(.unknown),
                .echo.twice(),
                .echo.dribbled(bytes: 7),
                .status(.partial),
                .echo.late(),
                .echo.corrupted().then(.echo)
            )
        )
        // Occasionally the connection is lost.
        server.on(102, .oneOf(.echo, .echo, .echo, .reset, .close, .announcing))
        return server
    }

    /// Abandons a call in that place.
    private func abandon(
        _ way: Way,
        _ client: SocketClient,
        _ type: UInt32,
        _ completed: @escaping @Sendable () -> Void
    ) {
        var request = SocketRequest(type: type, body: "abandoned", timeout: .milliseconds(way == .timedOut ? 1 : 500))
        request.isIdempotent = true
        if way == .retried {
            request.retryPolicy = RetryPolicy(maximumAttempts: 3, backoff: Backoff(base: .milliseconds(1)))
            request.firstResponseTimeout = .milliseconds(50)
        }
        let witness = Witness()
        let queue: CallbackQueue? = way == .withQueue ? .socketThread : nil
        let handler: @Sendable (Result<SocketResponse, SocketError>) -> Void = { _ in
            withExtendedLifetime(witness) { completed() }
        }
        if way == .cancelledByIdentifier {
            return client.cancelTask(withIdentifier: client.dispatch(request, completionHandler: handler))
        }
        let task = client.dataTask(with: request, on: queue, completionHandler: handler)
        switch way {
        case .neverResumed:
            completed()
        case .cancelledBeforeResume:
            task.cancel()
            task.resume()
        case .resumed, .timedOut, .retried, .withQueue:
            task.resume()
        case .cancelledAtOnce:
            task.resume()
            task.cancel()
        case .cancelledLater:
            task.resume()
            DispatchQueue.global().asyncAfter(deadline: .now() + .microseconds(200)) { task.cancel() }
        case .cancelledByTheTask:
            task.resume()
            let call = Task { [client] in
                try? await client.data(for: SocketRequest(type: type, timeout: .milliseconds(500)))
            }
            call.cancel()
        case .cancelledByIdentifier:
            break
        case .progressCancelled:
            let progress = task.progress
            task.resume()
            progress.cancel()
        case .reprioritized:
            task.resume()
            task.priority = .high
        }
    }

    /// The configuration of the client.
    private enum Kind: CaseIterable {
        case plain
        /// Handlers run on the socket thread, and make calls there.
        case callingBackInline
        case intercepted
    }

    @Test(arguments: Kind.allCases) private func callsOfSixteenThreadsCompleteExactlyOnceAndNothingIsLeft(kind: Kind)
        async throws
    {
        let threads = 16
        let each = Self.calls / threads / Kind.allCases.count
        let completions = Watched(0)
        let server = try await self.faultyServer()
        var client: SocketClient? = SocketClient.connecting(to: server.endpoint) {
            $0.socket.backoff = Backoff(base: .milliseconds(1), cap: .milliseconds(5))
            $0.waitsForConnectivity = true
            $0.maximumWaiting = 1_000_000
            if kind == .intercepted { $0.interceptors = [PassThrough()] }
            if kind == .callingBackInline { $0.socket.callbackQueue = .socketThread }
        }
        weak let engine = client?.host.engine
        for thread in 0..<threads {
            guard let client else { break }
            let type: UInt32 = thread == 0 ? 102 : 101
            Thread.detachNewThread {
                for number in 0..<each {
                    let way = Way.allCases[(number + thread) % Way.allCases.count]
                    self.abandon(way, client, type) { completions.withLockedValue { $0 += 1 } }
                    if thread == 1, number % 100 == 0 { client.cancelAllTasks() }
                    // Slowly enough that calls are abandoned in every place.
                    if number % 64 == 0 { Thread.sleep(forTimeInterval: 0.001) }
                }
            }
        }
        try await completions.wait("every completion") { $0 == threads * each }
        try await eventually("an empty table") { [client] in
            guard let engine = client?.host.engine else { return true }
            return await withCheckedContinuation { answer in
                _ = engine.loop.submit(
                    .closure { _ in
                        answer.resume(returning: engine.hot.table.count == 0)
                    }
                )
            }
        }
        client = nil
        try await eventually("the client's end") { engine == nil }
        try await Witness.alive.wait("the calls' end") { $0 == 0 }
        #expect(completions.current == threads * each)
    }

    @Test func clientsReleasedInMidCallKeepNothing() async throws {
        let server = try await self.faultyServer()
        let completions = Watched(0)
        let rounds = max(10, Self.calls / 1_000)
        for round in 0..<rounds {
            var configuration = SocketClient.Configuration(servers: [server.endpoint])
            if round % 2 == 0 { configuration.interceptors = [PassThrough()] }
            let client = SocketClient(configuration: configuration)
            if round % 5 > 0 { client.connect() }
            for way in Way.allCases { self.abandon(way, client, 101) { completions.withLockedValue { $0 += 1 } } }
            if round % 3 == 0 { client.disconnect() }
        }
        try await completions.wait("every completion") { $0 == rounds * Way.allCases.count }
        try await Witness.alive.wait("the calls' end") { $0 == 0 }
    }
}

extension MockServer.Reaction {
    /// A length over every client's limit.
    fileprivate static var announcing: Self { .echo.announcing(length: .max) }
}
