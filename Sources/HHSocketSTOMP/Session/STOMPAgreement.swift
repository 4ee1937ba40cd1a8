// SPDX-License-Identifier: Apache-2.0
public import HHSocket

/// The agreement with a broker on one connection.
public struct STOMPAgreement: Hashable, Sendable {
    /// The broker.
    public var endpoint: Endpoint
    public var version: STOMPVersion
    /// The broker's name and version, if it sends them.
    public var server: String?
    /// The broker's identifier of the session, if it sends one.
    public var session: String?
    /// The heart-beats that were agreed on.
    public var heartbeats: STOMPHeartbeats
    /// All headers of the broker's CONNECTED.
    public var headers: STOMPHeaders
}
