// SPDX-License-Identifier: Apache-2.0
/// A number of ``ServerStatistics``, each with its metric.
enum ServerCounter: Int, CaseIterable, Sendable {
    case connectionsAccepted
    case connectionsRefused
    case connectionsRefusedByAddress
    case connectionsRefusedByRate
    case silentEvictions
    case connectionsRefusedByAdmission
    case acceptFailures
    case proxyHeaderFailures
    case tlsFailures
    case clientCertificatesRevoked
    case requests
    case unknownTypes
    case badChecksums
    case illegalRequests
    case refusedByAdmission
    case protocolErrors
    case overloads
    case overloadsOfMemory
    case overloadsOfRate
    case overloadsOfConcurrency
    case overloadsOfType
    case overloadsOfIdentity
    case overloadsOfStreams
    case deadlinesExceeded
    case handlerTimeouts
    case handlerErrors
    case refusedWhileDraining
    case streamsOpened
    case idleStreams
    case cancelledRequests
    case ignoredControlFrames
    case heartbeatsAnswered
    case pingsSent
    case deadPeers
    case idleEvictions
    case firstFrameTimeouts
    case strangerTimeouts
    case frameFloods
    case readStalls
    case writeStalls
    case memoryEvictions
    case slowClientsClosed
    case cancelFloods
    case sessionsDismissed
    case hellos
    case authenticationsRefused
    case idempotentRepeats
    case idempotentAnswersForgotten
    case idempotentAnswersTooLarge
    case goAwaysSent
    case errorsNotSent
    case pushesSent
    case pushesDropped

    /// The last part of the metric's name: the case's in lower case, with underscores.
    var name: String {
        "\(self)".reduce(into: "") { name, character in
            if character.isUppercase { name += "_" }
            name += character.lowercased()
        }
    }
}
