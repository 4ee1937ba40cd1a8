// SPDX-License-Identifier: Apache-2.0
import HHSocketLink

/// The bounds of strangers: clients that have not sent the hello that the server requires, or whose identity is not
/// known although the router requires one (``AuthenticationMiddleware``).
///
/// Once a client is known, by the agreement of hello and by ``ServerSession/authenticate(as:)``, the other limits of
/// ``ServerLimits`` apply. If a server requires neither, no client is a stranger. A client that signs out is a stranger
/// again.
///
/// A stranger's bodies are not decompressed: hello does not agree on compression with a client that remains a stranger,
/// and compressed requests of one that has signed out are answered ``/HHSocket/Status/noPermission`` (405). Its
/// idempotency keys are ignored, so answers to it are not kept.
public struct StrangerLimits: Hashable, Sendable {
    /// The largest payload accepted of a stranger, in bytes; 128 KiB by default, and never more than
    /// ``ServerLimits/maximumPayloadLength``. A stranger that announces a larger one is answered
    /// ``/HHSocket/Status/illegalLength`` (301) and its connection closes, before the payload is read.
    public var maximumPayloadLength = 128 << 10
    /// The number of requests of a stranger that may be in flight; 4 by default, and never more than
    /// ``ServerLimits/maximumInFlightPerConnection``. Further ones are answered ``/HHSocket/Status/overloaded`` (503).
    public var maximumInFlight = 4
    /// The time within which a client must identify itself; then it is sent a go-away, for 1 to 5 s at random, and
    /// closed. 10 s by default; nil: no limit. The time does not advance while ``ServerHello/authenticate`` runs for
    /// the client, or the client waits for it.
    public var timeToBecomeKnown: Duration? = .seconds(10)

    package init() {}
}

extension ServerLimits {
    /// The largest payload of a client, in bytes.
    func maximumPayloadLength(ofStranger isStranger: Bool) -> Int {
        isStranger ? min(self.strangers.maximumPayloadLength, self.maximumPayloadLength) : self.maximumPayloadLength
    }

    /// The number of requests of a client that may be in flight.
    func maximumInFlight(ofStranger isStranger: Bool) -> Int {
        let limit = self.maximumInFlightPerConnection
        return isStranger ? min(self.strangers.maximumInFlight, limit) : limit
    }
}
