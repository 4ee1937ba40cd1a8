// SPDX-License-Identifier: Apache-2.0
/// The memory costs of objects, in bytes, as measured. An account that is too high refuses too early, one that is too
/// low lets the process grow: these are rounded up.
enum ConnectionCost {
    /// A connection over plain TCP on which nothing happens.
    static let plain = 8 << 10
    /// A connection over TLS on which nothing happens.
    static let tls = 64 << 10
    /// The additional cost of a connection over TLS that has carried a file: NIOSSL's buffers and that of reads, which
    /// stay.
    static let tlsContent = 320 << 10
    /// A connection from which a proxy's header, or the beginning of a TLS handshake, is awaited.
    static let waitingHandshake = 4 << 10
    /// A request whose handler is a task, without its body and its metadata: the task, the frames of middleware, its
    /// place in the tables, the answer's frame.
    static let request = 8 << 10
    /// A request with an idempotency key while it runs, in addition to the key: its place in the window, and its
    /// fingerprint.
    static let runningKey = 512
    /// A push that waits, without its bytes.
    static let waitingPush = 64
    /// Answers up to this many bytes are not charged between their handler and the connection's thread.
    static let freeAnswer = 4 << 10
    /// Items of streams up to this many bytes are not charged while a handler works on them.
    static let freeItem = 4 << 10
}

/// The cost of a request from its admission until its answer is taken. A number and no ``/HHSocket/Hold``: requests are
/// added to the sum of their session, which is charged once a turn.
struct RequestCost: Hashable, Sendable {
    let bytes: Int

    /// - Parameters:
    ///   - payload: The memory of the body, which the request owns, in bytes.
    ///   - extras: What it brings beside its body; nil if there is nothing.
    init(payload: Int, _ extras: ServerContext.Extras?) {
        self.bytes = ConnectionCost.request + payload + (extras?.memory ?? 0)
    }
}
