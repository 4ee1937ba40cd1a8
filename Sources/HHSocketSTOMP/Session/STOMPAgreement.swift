// SPDX-License-Identifier: Apache-2.0
public import HHSocket

/// The agreement with a broker on one connection.
public struct STOMPAgreement: Hashable, Sendable {
    /// The broker.
    public package(set) var endpoint: Endpoint
    public package(set) var version: STOMPVersion
    /// The broker's name and version, if it sends them.
    public package(set) var server: String?
    /// The broker's identifier of the session, if it sends one.
    package var session: String?
    /// The heart-beats that were agreed on.
    public package(set) var heartbeats: STOMPHeartbeats
    /// All headers of the broker's CONNECTED.
    public package(set) var headers: STOMPHeaders
}
