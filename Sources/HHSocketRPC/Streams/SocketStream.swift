// SPDX-License-Identifier: Apache-2.0
public import HHSocket
import NIOConcurrencyHelpers
public import NIOCore

/// A stream: a call in which the client, the server or both send any number of items.
///
/// ```swift
/// let stream = try await client.stream(for: SocketRequest(type: 1012))
/// try await stream.send(ByteBuffer(string: "one"))
/// stream.finish()
/// for try await item in stream.items { print(String(buffer: item)) }
/// print(try await stream.response.metadata)
/// ```
/// Both directions have flow control: ``send(_:)`` waits while the server has no room, and a server whose items are not
/// taken waits as well. ``SocketClient/stream(for:kind:)`` opens a stream,
/// ``SocketClient/openStream(for:kind:on:onItem:completionHandler:)`` opens one with callbacks.
///
/// A stream that is released before its end is cancelled. ``items`` and their iterators retain it.
public final class SocketStream: Sendable {
    /// The request that the stream was opened with.
    package let originalRequest: SocketRequest
    /// Which sides send items.
    package let kind: StreamKind
    let call: StreamCall
    private let task: SocketTask

    init(_ task: SocketTask, _ call: StreamCall) {
        self.originalRequest = task.originalRequest
        self.kind = call.kind
        self.call = call
        self.task = task
    }

    deinit {
        if self.call.end == nil { self.task.cancel() }
        self.call.discardItems()
    }

    /// Waits for the socket thread. Cancelling the Swift task cancels the stream.
    ///
    /// - Parameter register: Registers the waiter; false if there is nothing to wait for.
    func wait(
        isolation: isolated (any Actor)? = #isolation,
        _ register: @Sendable (TurnWaiter) -> Bool
    ) async {
        await withTaskCancellationHandler {
            // A closure that captures the isolation runs in it. Otherwise it would begin elsewhere, and hop back.
            _ = isolation
            await withUnsafeContinuation { continuation in
                let waiter = TurnWaiter(continuation, isHere: self.call.loop.isCurrent)
                if !register(waiter) { continuation.resume() }
            }
        } onCancel: {
            self.cancel()
        }
    }

    // MARK: Sending

    /// Sends an item, and returns when the next may be sent: when the server has room on this stream and on the
    /// connection, and not too many items wait to be sent.
    ///
    /// - Throws: ``/HHSocket/SocketError``: the end of the stream, if it has not ended with status 200, and `cancelled`
    ///   if it has; the item is dropped. `frameTooLarge` if the item exceeds the limit, and `invalidArgument` after
    ///   ``finish()``; then the stream continues.
    public nonisolated(nonsending) func send(_ body: ByteBuffer) async throws(SocketError) {
        guard try self.call.put(body) else { return }
        await self.wait { self.call.awaitRoom(.task($0)) }
        if let end = self.call.end { throw self.call.noItemIsSent(after: end) }
    }

    /// Sends an item.
    ///
    /// - Parameters:
    ///   - body: The item.
    ///   - completionHandler: Called on the callback queue when the next item may be sent, or with the error that
    ///     ``send(_:)`` throws. Items that are sent before that wait in memory.
    public func send(
        _ body: ByteBuffer,
        completionHandler: @escaping @Sendable (Result<Void, SocketError>) -> Void
    ) {
        let handler: @Sendable (SocketError?) -> Void = { error in
            completionHandler(error.map { .failure($0) } ?? .success(()))
        }
        do throws(SocketError) {
            var end: SocketError?
            if try self.call.put(body) {
                guard !self.call.awaitRoom(.handler(handler)) else { return }
                end = self.call.end.map { self.call.noItemIsSent(after: $0) }
            }
            self.call.callBack { [end] in handler(end) }
        } catch {
            self.call.callBack { handler(error) }
        }
    }

    /// Ends this side's items: the server is notified after all sent items. May be called any number of times.
    public func finish() { self.call.finish() }

    // MARK: The end

    /// The server's final answer, once it has arrived. Its metadata are the trailers; its body is the one answer of a
    /// server that does not stream, and otherwise empty.
    ///
    /// Does not wait for items to be taken.
    public var response: SocketResponse {
        get async throws(SocketError) {
            if let end = self.call.end { return try end.get() }
            await self.wait { self.call.awaitEnd($0) }
            guard let end = self.call.end else { throw CallErrors.released }
            return try end.get()
        }
    }

    /// Cancels the stream: the server is notified, received items that were not taken are dropped, and waiting calls
    /// end with `cancelled`. Returns at once. Once the stream has ended, it only drops items.
    public func cancel() {
        if self.call.end == nil { self.task.cancel() }
        self.call.discardItems()
        self.call.resume()
    }

    /// The metrics of the stream as a call, once it has ended.
    public var metrics: SocketTaskMetrics? { self.task.metrics }

    // MARK: Draining

    /// Whether the server is shutting down, or the client is failing over.
    package var isDraining: Bool { self.call.state.withLockedValue { $0.isDraining } }

    /// Calls `handler` on the callback queue when the server shuts down, or the client fails over, or soon if that has
    /// happened: the stream continues for a limited time. An application that can continue on another connection ends
    /// it, and opens another.
    public func onDraining(_ handler: @escaping @Sendable () -> Void) { self.call.onDraining(handler) }

    // MARK: Callbacks

    /// Stops the callbacks of a stream that was opened with them, until ``resume()``. A running one continues. The
    /// server stops as soon as a window is full.
    public func pause() { self.call.pause() }

    /// Continues callbacks.
    public func resume() { self.call.resume() }
}

extension SocketStream {
    /// The items of the server.
    public var items: Items { Items(stream: self) }

    /// Cancels the stream because of an item that cannot be decoded.
    func cancelled(
        byItemOf method: String,
        message: String,
        item: ByteBuffer,
        because error: any Error
    ) -> SocketError {
        let error = SocketError(
            .protobufFailed,
            message: """
                an item of \(method), of \(item.readableBytes) bytes, is no \(message): \(error). The stream was \
                cancelled. Do both sides have the same .proto?
                """,
            underlying: error,
            delivery: .answered,
            body: item
        )
        self.call.fail(error)
        self.call.discardItems()
        return error
    }
}

extension SocketStream {
    /// The address at which the stream is, or was last, open; nil before.
    package var address: StreamAddress? { self.call.state.withLockedValue { $0.address } }
}
