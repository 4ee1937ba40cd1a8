// SPDX-License-Identifier: Apache-2.0
import HHSocketLink
import NIOCore

/// An error that a handler throws to answer with a status other than 200.
///
/// If the request has an idempotency key, an answer whose status is transient (``/HHSocket/Status/isTransient``) is not
/// kept for the key: a repeat runs the handler again. Throw a transient status only if nothing was done, or if doing it
/// twice is harmless. Any other error that a handler throws is answered with ``/HHSocket/Status/unknown``, which is
/// transient.
public struct StatusError: Error, Hashable, Sendable {
    /// The answer's status.
    public let status: Status
    /// The answer's payload; the client finds it in its error.
    public let body: ByteBuffer

    /// - Parameters:
    ///   - status: The answer's status, any 32 bits; those that are not listed in ``/HHSocket/Status`` reach the client
    ///     as the code `server(status)`.
    ///   - body: The answer's payload; empty by default.
    public init(_ status: Status, body: ByteBuffer = ByteBuffer()) {
        self.status = status
        self.body = body
    }
}

extension Status {
    /// The status of the answer to a request whose handler throws `error`.
    init(answering error: any Error) {
        self = (error as? StatusError)?.status ?? .unknown
    }
}
