// SPDX-License-Identifier: Apache-2.0
#if Outbox
import Foundation
import HHSocketRPC
import NIOConcurrencyHelpers
import NIOCore
import TestSupport
import Testing

@testable import HHSocketOutbox

extension TemporaryFolder {
    var outbox: String { self.file("outbox.sqlite") }
    var files: [String] { ((try? FileManager.default.contentsOfDirectory(atPath: self.path)) ?? []).sorted() }
}

func number(_ variable: String, or standard: Int) -> Int {
    max(1, ProcessInfo.processInfo.environment[variable].flatMap { Int($0) } ?? standard)
}

/// A record of events, as text.
final class EventRecord: Sendable {
    private let texts = NIOLockedValueBox<[String]>([])

    /// Records the events of `outbox` from now on.
    init(_ outbox: Outbox) {
        let events = outbox.events
        Task { [texts] in
            for await event in events { texts.withLockedValue { $0.append(Self.text(event)) } }
        }
    }

    var all: [String] { self.texts.withLockedValue { $0 } }

    static func text(_ event: OutboxEvent) -> String {
        switch event {
        case .enqueued(let entry): "enqueued \(entry.id)"
        case .delivered(let entry, _): "delivered \(entry.id)"
        case .deadLettered(let letter): "dead \(letter.id) \(letter.reason)"
        case .failed(let entry, let error): "failed \(entry.id) \(error.code)"
        case .expired(let entry): "expired \(entry.id)\(entry.mayHaveBeenSent ? ", perhaps sent" : "")"
        case .retrying(let entry, let error, _): "retrying \(entry.id) \(error.code)"
        case .suspended(let entry, let error): "suspended \(entry.id) \(error.code)"
        case .withdrawn(let entry): "withdrawn \(entry.id)"
        case .storageFailed(let error): "storage \(error.code)"
        }
    }
}

/// A transport whose answers a test determines, without a socket.
final class FakeTransport: OutboxTransport {
    typealias Answer = Result<SocketResponse, SocketError>

    private struct State {
        var sent: [SocketRequest] = []
        var held: [String: CheckedContinuation<Answer, Never>] = [:]
        var cancelled: Set<String> = []
        var continuations: [AsyncStream<Bool>.Continuation] = []
        var isConnected: Bool
    }

    private let state: Watched<State>
    /// Returns the answer to a request; nil for none until ``answer(_:_:)``.
    private let react: @Sendable (SocketRequest) -> Answer?

    init(isConnected: Bool = true, _ react: @escaping @Sendable (SocketRequest) -> Answer? = { _ in nil }) {
        self.state = Watched(State(isConnected: isConnected))
        self.react = react
    }

    static func ok(_ request: SocketRequest) -> Answer {
        .success(SocketResponse(type: request.type, body: request.body, endpoint: Endpoint(host: "fake", port: 1)))
    }

    static func refusal(_ code: SocketError.Code, _ delivery: SocketError.Delivery = .answered) -> Answer {
        .failure(SocketError(code, message: "as the test says", delivery: delivery))
    }

    /// The bodies that were sent, in order.
    var sent: [String] { self.state.withLockedValue { $0.sent.map { String(buffer: $0.body) } } }
    var requests: [SocketRequest] { self.state.withLockedValue { $0.sent } }

    func send(_ request: SocketRequest) async throws(SocketError) -> SocketResponse {
        self.state.withLockedValue { $0.sent.append(request) }
        if let answer = self.react(request) { return try answer.get() }
        let key = String(buffer: request.body)
        let answer = await withTaskCancellationHandler {
            await withCheckedContinuation { continuation in
                let isCancelled = self.state.withLockedValue { state in
                    if state.cancelled.remove(key) != nil { return true }
                    state.held[key] = continuation
                    return false
                }
                if isCancelled { continuation.resume(returning: Self.refusal(.cancelled, .sentUnknown)) }
            }
        } onCancel: {
            let continuation = self.state.withLockedValue { state in
                let continuation = state.held.removeValue(forKey: key)
                if continuation == nil { state.cancelled.insert(key) }
                return continuation
            }
            continuation?.resume(returning: Self.refusal(.cancelled, .sentUnknown))
        }
        return try answer.get()
    }

    /// Answers the request with this body, once it has been sent.
    func answer(_ body: String, _ answer: Answer? = nil) async throws {
        try await self.state.wait("\(body) is sent") { $0.held[body] != nil }
        let continuation = self.state.withLockedValue { $0.held.removeValue(forKey: body) }
        continuation?.resume(returning: answer ?? Self.ok(SocketRequest(type: 130, body: body)))
    }

    var connectivity: AsyncStream<Bool> {
        let (stream, continuation) = AsyncStream.makeStream(of: Bool.self)
        self.state.withLockedValue { state in
            state.continuations.append(continuation)
            continuation.yield(state.isConnected)
        }
        return stream
    }

    func connectivityChanged(_ isConnected: Bool) {
        self.state.withLockedValue { state in
            state.isConnected = isConnected
            for continuation in state.continuations { continuation.yield(isConnected) }
        }
    }
}
#endif
