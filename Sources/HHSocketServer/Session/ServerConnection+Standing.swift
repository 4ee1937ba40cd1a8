// SPDX-License-Identifier: Apache-2.0
import HHSocket
import NIOCore

/// The client's identity, and its limits on requests and on unproductive frames.
extension ServerConnection {
    static func decoder(_ listener: ListenerSettings, _ limits: ServerLimits, isStranger: Bool) -> FrameDecoder {
        var decoder = FrameDecoder(
            direction: .request,
            format: listener.format,
            maximumPayloadLength: limits.maximumPayloadLength(ofStranger: isStranger),
            copyLimit: 0,
            maximumCorruptRun: limits.maximumCorruptRun
        )
        if listener.supportsHello { decoder.accept(hellosUpTo: HelloLimits.maximumLength) }
        return decoder
    }

    /// The time for which a client that is closed should stay away from the server, random so that clients do not all
    /// reconnect at once.
    static var randomAbsence: Duration { .milliseconds(Int64.random(in: 1_000...5_000)) }

    // MARK: Strangers

    /// Whether the server requires an identity, and the client has none.
    var lacksIdentity: Bool { self.core.requiresIdentity && self.hot.serverContext?.session.identity == nil }

    /// Called when hello has led to an agreement, and when the client's identity has changed: applies the limits that
    /// follow from them.
    func updateStanding(in turn: inout Turn) {
        guard self.core.hasStrangers, self.hot.phase == .open else { return }
        let isStranger = (self.core.hello.isRequired && self.greeting.agreement == nil) || self.lacksIdentity
        guard isStranger != self.greeting.isStranger else { return }
        self.greeting.isStranger = isStranger
        self.link.accept(payloadsUpTo: self.core.limits.maximumPayloadLength(ofStranger: isStranger))
        self.hot.machine.maximumInFlight = self.core.limits.maximumInFlight(ofStranger: isStranger)
        self.hot.watching.watch.standingChanged(isStranger: isStranger, now: turn.now)
        self.hot.fastPath.standingChanged(isStranger: isStranger, core: self.core, listener: self.listener)
        self.boundStreams()
    }

    // MARK: Rates

    /// Charges a request to the rates of the connection, its address and its identity; returns false if one of them is
    /// used up.
    func takeRequest(now: NIODeadline) -> Bool {
        guard self.core.hasRequestRates else { return true }
        if self.bucket?.take(now: now) == false { return false }
        let session = self.hot.serverContext?.session
        if let rates = self.core.addressRates, let origin = ClientAddress(session?.remoteAddress),
            !rates.take(origin, now: now)
        {
            return false
        }
        if let rates = self.core.identityRates, let identity = session?.identity {
            return rates.take(identity, now: now)
        }
        return true
    }

    /// Called periodically: counts the control frames of the underlying WebSocket, which are not passed on.
    func chargeControlFrames(in turn: inout Turn) {
        guard let carriage = self.carriage, carriage.controlFrames > self.chargedControlFrames else { return }
        let count = carriage.controlFrames - self.chargedControlFrames
        self.chargedControlFrames = carriage.controlFrames
        if self.unproductiveBucket?.take(count, now: turn.now) == false { self.evict(.frameFlood, in: &turn) }
    }

    /// Charges unproductive frames. A client that sends too many is closed.
    func chargeUnproductiveFrames(in turn: inout Turn) {
        let count = self.hot.machine.takeUnproductiveFrames()
        if self.unproductiveBucket?.take(count, now: turn.now) == false { self.evict(.frameFlood, in: &turn) }
    }
}
