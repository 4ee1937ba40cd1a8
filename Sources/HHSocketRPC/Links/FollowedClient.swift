// SPDX-License-Identifier: Apache-2.0
import HHSocket
package import HHSocketLink
package import NIOCore

/// A client, for work of several calls that follows its connection, such as a transfer. It does not retain the client,
/// without which it makes neither streams nor calls.
package struct FollowedClient: Sendable {
    private let host: ClientHost
    private let makeStream: @Sendable (SocketRequest, StreamCall) -> SocketStream?
    private let makeCall: @Sendable (SocketRequest) -> Void

    package init(_ client: SocketClient) {
        self.host = client.host
        self.makeStream = { [weak client] in client?.makeStream($0, $1) }
        self.makeCall = { [weak client] in client?.dispatch($0) }
    }

    package var loop: SocketLoop { self.host.loop }

    /// Makes a call whose answer is ignored. Any thread.
    package func dispatch(_ request: SocketRequest) { self.makeCall(request) }

    // MARK: On the socket thread

    /// Whether the client has been neither invalidated nor released.
    package var acceptsCalls: Bool { self.host.engine.acceptsCalls }

    /// Passes the events of the connection to this object too.
    package func add(_ follower: any ConnectionFollower) { self.host.add(follower) }

    package func remove(_ follower: any ConnectionFollower) { self.host.remove(follower) }

    /// Opens a stream, whose items and end are reported on the socket thread; nil if the client was released.
    ///
    /// - Parameter onOpen: Called when the stream has been handed to a connection.
    package func openStream(
        _ request: SocketRequest,
        _ kind: StreamKind,
        onItem: @escaping @Sendable (ByteBuffer) -> Void,
        onEnd: @escaping @Sendable (Result<SocketResponse, SocketError>) -> Void,
        onOpen: @escaping @Sendable (ConnectionID) -> Void
    ) -> FollowedStream? {
        let call = StreamCall(
            self.host.streams,
            kind,
            callbackQueue: .socketThread,
            onItem: onItem,
            onEnd: onEnd,
            onOpen: onOpen
        )
        return self.makeStream(request, call).map { FollowedStream($0, self.host) }
    }

    /// Replaces a connection on which nothing moves. Returns false if it has been replaced already.
    package func replace(_ connection: ConnectionID, in turn: inout Turn) -> Bool {
        guard connection == self.host.engine.hot.connectionID else { return false }
        self.host.driver.perform(.replace(connection), in: &turn)
        return true
    }

    /// Reports that a connection has carried enough to count as a good one.
    package func prove(_ connection: ConnectionID, in turn: inout Turn) {
        self.host.driver.perform(.proved(connection), in: &turn)
    }
}

/// A stream of a ``FollowedClient``. It ends when it is released.
package final class FollowedStream: Sendable {
    private let stream: SocketStream
    private let host: ClientHost

    init(_ stream: SocketStream, _ host: ClientHost) {
        self.stream = stream
        self.host = host
    }

    // MARK: From any thread

    /// Passes an item on for sending. Returns whether the next one must wait for room.
    ///
    /// - Throws: The error of an item that is too long, or of the end of the stream.
    package func send(_ item: ByteBuffer) throws(SocketError) -> Bool { try self.stream.call.put(item) }

    /// Calls `handler` once there is room, or with the error with which the stream has ended. Returns false, and does
    /// not call it, if there is room.
    package func awaitRoom(_ handler: @escaping @Sendable (SocketError?) -> Void) -> Bool {
        self.stream.call.awaitRoom(.handler(handler))
    }

    /// Ends this side's items.
    package func finish() { self.stream.finish() }

    /// Stops passing items on, which stops the server once its window is full.
    package func pause() { self.stream.pause() }

    package func resume() { self.stream.resume() }

    package func cancel() { self.stream.cancel() }

    // MARK: On the socket thread

    /// The traffic of the stream, if it is open on this connection; nil otherwise.
    ///
    /// - Parameter asksSystem: Whether to query the system for the bytes that the peer has acknowledged.
    package func traffic(on connection: ConnectionID, asksSystem: Bool) -> StreamTraffic? {
        self.host.streams.traffic(of: self.stream.call, on: connection, asksSystem: asksSystem)
    }

    /// Allows the server to send this amount before it has been taken, if it is more than the window of hello.
    package func widen(on connection: ConnectionID, to window: UInt64, in turn: inout Turn) {
        self.host.streams.widen(self.stream.call, on: connection, to: window, in: &turn)
    }
}
