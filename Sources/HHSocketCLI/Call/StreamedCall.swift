// SPDX-License-Identifier: Apache-2.0
import ArgumentParser
import HHSocket
import HHSocketRPC
import NIOConcurrencyHelpers
import NIOCore

/// An item that the server has sent.
struct StreamedItem {
    var body: ByteBuffer
    var serial: UInt32
    var server: Endpoint?
    /// The time since the call began.
    var duration: Duration
}

/// One call whose client or server streams: sends the lines of standard input, and hands over the items that come.
final class StreamedCall: Sendable {
    private struct State {
        var opening: Task<Result<SocketStream, SocketError>, Never>?
        var stream: SocketStream?
        var isCancelled = false
        var inputFailure: ItemInput.Failure?
    }

    private let client: SocketClient
    private let request: SocketRequest
    private let kind: StreamKind
    /// The items to send; nil where the client sends one message.
    private let input: ItemInput?
    private let state = NIOLockedValueBox(State())

    init(client: SocketClient, request: SocketRequest, kind: StreamKind, input: ItemInput?) {
        self.client = client
        self.request = request
        self.kind = kind
        self.input = input
    }

    /// The reason why the call was given up before the end of its input; nil if it was not.
    var inputFailure: ItemInput.Failure? { self.state.withLockedValue { $0.inputFailure } }

    /// Makes the call. Returns when it has ended, although standard input may still be open, and the connection is
    /// closed.
    ///
    /// - Parameter report: Throws to end the call.
    /// - Throws: The error of `report`.
    func run(
        _ report: (StreamedItem) throws(StandardOutput.Failure) -> Void
    ) async throws(StandardOutput.Failure) -> MeasuredOutcome {
        let clock = ContinuousClock()
        let begin = clock.now
        let outcome: Result<SocketResponse, SocketError>
        var metrics: SocketTaskMetrics?
        var failure: StandardOutput.Failure?
        do throws(SocketError) {
            let stream = try await self.open()
            let sending = Task { await self.send(on: stream) }
            // Reading standard input cannot be cancelled, so nothing waits for it.
            defer {
                sending.cancel()
                metrics = stream.metrics
            }
            for try await body in stream.items where failure == nil {
                let address = stream.address
                let item = StreamedItem(
                    body: body,
                    serial: address?.serial ?? 0,
                    server: address?.endpoint,
                    duration: clock.now - begin
                )
                do throws(StandardOutput.Failure) {
                    try report(item)
                } catch {
                    failure = error
                    stream.cancel()
                }
            }
            outcome = .success(try await stream.response)
        } catch {
            outcome = .failure(error)
        }
        let duration = clock.now - begin
        // Flushes: a cancel reaches the server before the process ends.
        await self.client.close()
        if let failure { throw failure }
        return MeasuredOutcome(result: outcome, duration: duration, metrics: metrics)
    }

    /// Cancels the call, also while it waits for a connection.
    func cancel() {
        let (opening, stream) = self.state.withLockedValue { state in
            state.isCancelled = true
            return (state.opening, state.stream)
        }
        opening?.cancel()
        stream?.cancel()
    }

    private func open() async throws(SocketError) -> SocketStream {
        self.client.connect()
        let opening = Task {
            await Result.of { () async throws(SocketError) in
                try await self.client.stream(for: self.request, kind: self.kind)
            }
        }
        let wasCancelled = self.state.withLockedValue { state in
            state.opening = opening
            return state.isCancelled
        }
        if wasCancelled { opening.cancel() }
        let stream = try await opening.value.get()
        let isCancelled = self.state.withLockedValue { state in
            state.stream = stream
            return state.isCancelled
        }
        if isCancelled { stream.cancel() }
        return stream
    }

    private func send(on stream: SocketStream) async {
        guard let input = self.input else { return }
        do throws(ItemInput.Failure) {
            try await input.read { item in
                do throws(SocketError) {
                    try await stream.send(item)
                    return true
                } catch {
                    // The stream has ended; its items or its answer give the reason.
                    return false
                }
            }
            stream.finish()
        } catch {
            self.state.withLockedValue { $0.inputFailure = error }
            stream.cancel()
        }
    }
}
