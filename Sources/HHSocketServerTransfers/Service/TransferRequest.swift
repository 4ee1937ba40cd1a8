// SPDX-License-Identifier: Apache-2.0
import HHSocketServer
public import HHSocketTransferValues

/// An attempt of a client to use a store, as the application decides on it.
public struct TransferRequest: Hashable, Sendable {
    /// The methods of the service. Cases may be added; have a default when you switch over it.
    public enum Method: String, Hashable, Sendable, CustomStringConvertible {
        /// Sends a file, or continues one.
        case put
        /// Fetches a file.
        case get
        /// Asks for the size, hash and time of a file.
        case find
        /// Removes an unfinished file that this client has begun to send.
        case discard

        public var description: String { self.rawValue }
    }

    public let method: Method
    public let id: TransferID
    /// The length of the file to be sent, in bytes; nil with other methods than ``Method/put``.
    public let size: UInt64?
    /// The SHA-256 of the file to be sent; nil with other methods than ``Method/put``, and for a large file as long as
    /// the client is still computing it.
    public let sha256: TransferDigest?

    init(method: Method, id: TransferID, size: UInt64? = nil, sha256: TransferDigest? = nil) {
        self.method = method
        self.id = id
        self.size = size
        self.sha256 = sha256
    }
}
