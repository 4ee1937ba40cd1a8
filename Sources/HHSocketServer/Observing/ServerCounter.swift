// SPDX-License-Identifier: Apache-2.0
/// A count of ``ServerStatistics``, each with its metric: <doc:Operations> has their names. Cases may be added in any
/// version.
public enum ServerCounter: Int, CaseIterable, Sendable {
    /// Connections accepted; with TLS, once that is agreed on.
    case connectionsAccepted
    /// Connections refused because there were too many (``ServerLimits/maximumConnections``).
    case connectionsRefused
    /// Connections refused because too many came from their address (``ServerLimits/maximumConnectionsPerAddress``).
    case connectionsRefusedByAddress
    /// Connections refused because too many were made from their address in a short time
    /// (``ServerLimits/connectionRatePerAddress``).
    case connectionsRefusedByRate
    /// Connections closed for a new one, because they had been silent longest (``ServerLimits/minimumSilence``).
    case silentEvictions
    /// Connections refused by the application (``ConnectionPolicy/admit``).
    case connectionsRefusedByAdmission
    /// Times that the system had no resources for one more connection, so that none was accepted for a while.
    case acceptFailures
    /// Connections of listed proxies closed because their PROXY header was malformed, or did not arrive in time
    /// (``ServerProxies/proxyProtocol``).
    case proxyHeaderFailures
    /// Connections closed because TLS could not be agreed on, or took too long.
    case tlsFailures
    /// Connections closed because a client's certificate is revoked, or its issuer has no current list
    /// (``ServerTLS/revocationLists``).
    case clientCertificatesRevoked
    /// Requests with a right checksum, however they were answered.
    case requests
    /// Requests whose type no handler has: answered 401, or by middleware that sees them
    /// (``ServerMiddleware/seesUnknownTypes``).
    case unknownTypes
    /// Frames with a wrong checksum.
    case badChecksums
    /// Requests answered 303: a reserved serial, or one that was still in flight; or 301, with a body that is longer
    /// than allowed; or 405: a stranger's, compressed.
    case illegalRequests
    /// Requests refused by an admission (``ServerAdmission``), for example because the client has no identity.
    case refusedByAdmission
    /// Connections closed because their bytes were invalid: a length over the limit, an implausible header after a
    /// wrong checksum, several wrong checksums in a row, or a header that the wire format does not have.
    case protocolErrors
    /// Requests answered 503, because a limit was reached; the next six are among them.
    case overloads
    /// Overloads because too many bytes were held (``ServerLimits/maximumBufferedBytes`` or
    /// ``ServerLimits/maximumBufferedBytesPerConnection``).
    case overloadsOfMemory
    /// Overloads because the connection, its address or its identity exceeded its rate of requests
    /// (``ServerLimits/requestRate``, ``ServerLimits/requestRatePerAddress``, ``ServerLimits/requestRatePerIdentity``).
    case overloadsOfRate
    /// Overloads because the adaptive limit on concurrency was reached (``ServerLimits/concurrency``).
    case overloadsOfConcurrency
    /// Overloads because too many requests of the type were in flight (``RouteLimits``).
    case overloadsOfType
    /// Overloads because too many requests of the client's identity were in flight
    /// (``ServerLimits/maximumInFlightPerIdentity``).
    case overloadsOfIdentity
    /// Overloads because the maximum number of streams was open on the connection
    /// (``ServerConfiguration/streams``).
    case overloadsOfStreams
    /// Requests answered 408 because their deadline had passed before they were begun, or passed while their handler
    /// ran.
    case deadlinesExceeded
    /// Requests answered 408 because their handler exceeded its time limit (``ServerLimits/handlerTimeout``,
    /// ``RouteLimits``).
    case handlerTimeouts
    /// Requests answered 404 because their handler threw an error other than a status.
    case handlerErrors
    /// Requests answered 504, because the server was shutting down.
    case refusedWhileDraining
    /// Streams opened.
    case streamsOpened
    /// Streams answered 408, because nothing moved on them (``/HHSocket/StreamPolicy/idleLimit``).
    case idleStreams
    /// Handlers stopped because their client cancelled the request.
    case cancelledRequests
    /// Control frames without effect: unknown ones, and cancels of requests that were no longer in flight.
    case ignoredControlFrames
    /// Clients' heartbeats answered.
    case heartbeatsAnswered
    /// Pings sent.
    case pingsSent
    /// Connections closed because no byte followed our pings.
    case deadPeers
    /// Connections closed because nothing happened on them (``ServerLimits/idleTimeout``).
    case idleEvictions
    /// Connections closed because their first frame did not arrive in time: 10 s after TLS, or to a required hello.
    case firstFrameTimeouts
    /// Connections closed because their client did not identify itself in time (``StrangerLimits/timeToBecomeKnown``).
    case strangerTimeouts
    /// Connections closed because too many of their frames were unproductive, such as heartbeats, unknown types and
    /// wrong checksums: more than 1,000 a second, and 20,000 at once.
    case frameFloods
    /// Connections closed because a frame did not get on (``ServerLimits/readStallTimeout``).
    case readStalls
    /// Connections closed because their client did not read (``ServerLimits/writeStallTimeout``).
    case writeStalls
    /// Connections closed because too many bytes were held for them, or in all.
    case memoryEvictions
    /// Connections closed because their client did not read its pushes (``SlowClientPolicy/disconnect``).
    case slowClientsClosed
    /// Connections closed because their client cancelled too many requests (``ServerLimits/cancelRate``).
    case cancelFloods
    /// Connections closed because their client's identity had too many
    /// (``ServerLimits/maximumSessionsPerIdentity``).
    case sessionsDismissed
    /// Clients' hellos answered.
    case hellos
    /// Hellos, and requests to open a WebSocket, answered 503 because 4,096 authentications waited
    /// (``ServerHello/maximumConcurrentAuthentications``).
    case authenticationsRefused
    /// Requests answered with the first answer to their idempotency key.
    case idempotentRepeats
    /// Answers that were kept for an idempotency key and discarded before ``IdempotencyPolicy/lifetime``, to make room
    /// for others. A repeat of their request runs the handler again.
    case idempotentAnswersForgotten
    /// Answers that were not kept for their idempotency key, because they were too large (``IdempotencyPolicy``).
    case idempotentAnswersTooLarge
    /// Go-aways sent to clients.
    case goAwaysSent
    /// Errors that were not answered, because the wire format has no status for them.
    case errorsNotSent
    /// Pushes handed to a connection; one push to three connections counts three.
    case pushesSent
    /// Pushes dropped for a connection whose client reads too slowly.
    case pushesDropped

    /// The last part of the metric's name: the case's in lower case, with underscores.
    var name: String {
        "\(self)".reduce(into: "") { name, character in
            if character.isUppercase { name += "_" }
            name += character.lowercased()
        }
    }
}
