// SPDX-License-Identifier: Apache-2.0
import Atomics
import HHSocketLink
import Logging

/// The books of a server: its peers, by address, number and identity, what is held for them, and what is said of them.
final class ServerBooks: Sendable {
    /// The clock by which clients are judged.
    let time: SocketTime
    let ledger: Ledger
    let quota: ConnectionQuota
    let registry: SessionRegistry
    let sessions = ClientTable<ServerSession>()
    let webSockets = ClientTable<WebSocketConnection>()
    let logger: Logger
    let peerLog: PeerLog
    private let connectionIDs = ManagedAtomic<UInt64>(0)

    init(_ configuration: ServerConfiguration, _ quota: ConnectionQuota.Limits, loopCount: Int) {
        let (limits, time) = (configuration.limits, configuration.time)
        self.time = time
        self.ledger = Ledger(limits, shards: loopCount, time: time)
        self.quota = ConnectionQuota(quota, time: time)
        self.registry = SessionRegistry(
            maximumSessions: limits.maximumSessionsPerIdentity,
            maximumInFlight: limits.maximumInFlightPerIdentity
        )
        self.logger = configuration.logger
        self.peerLog = PeerLog(time: time)
    }

    func nextConnectionID() -> UInt64 {
        self.connectionIDs.wrappingIncrementThenLoad(ordering: .relaxed)
    }
}
