// SPDX-License-Identifier: Apache-2.0
public import HHSocket
public import NIOCore

extension SocketClient {
    /// Opens a stream: waits for a connection, and for another stream to end if
    /// ``/HHSocket/StreamPolicy/maximumStreams`` are open.
    ///
    /// Streams require a connection that has agreed on ``/HHSocket/ProtocolFeature/streams`` by hello, which the client
    /// requests if ``ClientConfiguration/streams`` is set. A deadline covers the whole stream if the request sets one
    /// (``CallOptions/timeout``, ``CallOptions/deadline``); otherwise there is none, and the client's timeout limits
    /// the opening. Interceptors see a stream as one call, whose answer is its end. Cancelling the Swift task cancels
    /// the stream.
    ///
    /// - Parameters:
    ///   - request: The opening. If the client sends one message, its body is that message; otherwise it has no body.
    ///   - kind: The sides that send items, as on the server; both by default.
    /// - Throws: ``/HHSocket/SocketError`` if the stream cannot be opened; with the code `featureNotAgreed`, before
    ///   anything is sent, on a connection without streams.
    public nonisolated(nonsending) func stream(
        for request: consuming SocketRequest,
        kind: StreamKind = .bidirectional
    ) async throws(SocketError) -> SocketStream {
        let stream = self.makeStream(request, StreamCall(self.host.streams, kind, callbackQueue: nil))
        await stream.wait { stream.call.awaitOpening($0) }
        // A stream that was opened and has failed meanwhile reports that to its reader.
        if case .failure(let error)? = stream.call.endBeforeOpening { throw error }
        return stream
    }

    /// Opens a stream with callbacks, and returns at once.
    ///
    /// - Parameters:
    ///   - request: The opening. If the client sends one message, its body is that message; otherwise it has no body.
    ///   - kind: The sides that send items, as on the server; both by default.
    ///   - callbackQueue: The queue of both callbacks; nil, the default, for the configuration's.
    ///   - onItem: Called with each item, in order. The item counts as taken when this returns, so a slow callback
    ///     slows down the server; ``SocketStream/pause()`` stops it.
    ///   - completionHandler: Called exactly once, after all items, with the final answer or with an error.
    /// - Returns: The stream, which is cancelled when it is released before its end.
    public func openStream(
        for request: consuming SocketRequest,
        kind: StreamKind = .bidirectional,
        on callbackQueue: CallbackQueue? = nil,
        onItem: @escaping @Sendable (ByteBuffer) -> Void,
        completionHandler: @escaping @Sendable (Result<SocketResponse, SocketError>) -> Void
    ) -> SocketStream {
        self.makeStream(
            request,
            StreamCall(self.host.streams, kind, callbackQueue: callbackQueue, onItem: onItem, onEnd: completionHandler)
        )
    }

    func makeStream(_ request: SocketRequest, _ call: StreamCall) -> SocketStream {
        let task = SocketTask(
            identifier: self.nextIdentifier,
            request: request,
            engine: self.engine,
            completion: .party(call),
            callbackQueue: call.callbackQueue,
            isStream: true
        )
        let stream = SocketStream(task, call)
        task.resumeStream { [engine, streams = self.host.streams] turn in
            streams.begin(call, of: task, for: engine, in: &turn)
        }
        return stream
    }
}
