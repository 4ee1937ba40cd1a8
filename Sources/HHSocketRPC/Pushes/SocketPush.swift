// SPDX-License-Identifier: Apache-2.0
import HHSocket
import NIOCore

/// A message that the server sent without a request.
public struct SocketPush: Sendable, Hashable {
    public package(set) var type: UInt32
    public package(set) var status: Status
    /// The payload.
    public package(set) var body: ByteBuffer
    /// The custom fields of the push's header, by name; empty in formats that have none.
    public package(set) var header: [String: [UInt8]] = [:]
    /// The metadata that the server sent with the body, by name; empty if it sent none, as without an agreement on
    /// ``/HHSocket/ProtocolFeature/metadata``.
    public package(set) var metadata: [String: String] = [:]
    /// The server that sent it.
    public package(set) var endpoint: Endpoint

    /// The payload as text; bytes that are not UTF-8 are replaced.
    public var string: String { String(buffer: self.body) }
}

/// The pushes of one subscription that wait to be read.
typealias PushInbox = Inbox<SocketPush>

extension SocketPush: InboxElement {
    @usableFromInline package var memory: Int { self.body.detachedCapacity }

    @usableFromInline
    package mutating func detach(isOneOfMany: Bool) {
        // A larger part of its read is not worth a copy.
        if self.body.storageCapacity / 4 > self.body.readableBytes { self.body = self.body.detached }
    }
}
