// SPDX-License-Identifier: Apache-2.0
import HHSocketSTOMP
import TestSupport
import Testing

/// `STOMPClient` with RabbitMQ, at each of its doors.
///
/// The suites in it share a node, which some of them stop, so they run in one process, one after another.
@Suite(
    .tags(.io),
    .serialized,
    .timeLimit(.minutes(5)),
    .enabled(if: RabbitMQ.isInstalled, RabbitMQ.howToGetIt)
)
struct RabbitMQTests {
    /// A way to the node: by this door, in this version.
    struct Way: Sendable, CustomTestStringConvertible {
        var door: Broker.Door
        var version: STOMPVersion

        static let all = Broker.Door.allCases.flatMap { door in
            STOMPVersion.allCases.map { Way(door: door, version: $0) }
        }
        /// The ways with NACK and `client-individual`.
        static let withNACK = Self.all.filter { $0.version > .v1_0 }

        var testDescription: String { "\(self.door) \(self.version.rawValue)" }
    }
}
