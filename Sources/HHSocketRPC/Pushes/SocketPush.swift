// SPDX-License-Identifier: Apache-2.0
import HHSocket
import NIOCore

/// A message that the server sent without a request.
public struct SocketPush: Sendable, Hashable {
    public var type: UInt32
    public var status: Status
    /// The payload.
    public var body: ByteBuffer
    /// The custom fields of the push's header, by name; empty in formats that have none.
    public var header: [String: [UInt8]] = [:]
    /// The metadata that the server sent with the body, by name; empty if it sent none, as without an agreement on
    /// ``/HHSocket/ProtocolFeature/metadata``.
    public var metadata: [String: String] = [:]
    /// The server that sent it.
    public var endpoint: Endpoint

    /// Whether the body is a small part of the bytes that were read from the network together with it.
    var isSlice: Bool { self.body.storageCapacity / 4 > self.body.readableBytes }

    /// Copies the body, so that a waiting push does not retain all the bytes that were read together with it.
    mutating func detach() {
        self.body = ByteBuffer(bytes: self.body.readableBytesView)
    }

    /// The payload as text; bytes that are not UTF-8 are replaced.
    public var string: String { String(buffer: self.body) }
}
