// SPDX-License-Identifier: Apache-2.0
import NIOCore

/// A request as its handler sees it.
public struct ServerRequest: Sendable {
    /// The RPC's name.
    public package(set) var type: UInt32
    /// The number that matches the answer to the request; unique among the requests in flight on one connection.
    public package(set) var serial: UInt32
    /// The payload; its checksum was right.
    public var body: ByteBuffer
    /// The custom fields of the request's header, by name; empty in formats that have none.
    public var header: [String: [UInt8]] = [:]
}
