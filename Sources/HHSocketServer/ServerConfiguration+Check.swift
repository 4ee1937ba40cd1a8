// SPDX-License-Identifier: Apache-2.0
import HHSocketLink

extension ServerConfiguration {
    /// Checks for settings that cannot work, before anything is opened.
    ///
    /// - Throws: ``/HHSocket/SocketError/Code/invalidArgument``.
    func check(for router: Router) throws(SocketError) {
        guard !self.listeners.isEmpty else { throw .invalid("a server needs a listener") }
        try self.checkLimits()
        let shutdown = self.shutdown
        guard shutdown.retryAfter.upperBound <= max(shutdown.gracePeriod, .seconds(2)) else {
            throw .invalid(
                """
                shutdown.retryAfter (to \(shutdown.retryAfter.upperBound)) must not be above shutdown.gracePeriod \
                (\(shutdown.gracePeriod)): clients would be closed before they leave
                """,
                endpoint: self.firstEndpoint
            )
        }
        if let (type, fault) = router.faultOfLimits {
            throw .invalid("the limits of type \(type) cannot work: \(fault)", endpoint: self.firstEndpoint)
        }
        for listener in self.listeners { try self.check(listener, for: router) }
    }

    private func checkLimits() throws(SocketError) {
        let limits = self.limits
        for (name, value) in [
            ("eventLoops", self.eventLoops ?? 1),
            ("maximumInFlightPerConnection", limits.maximumInFlightPerConnection),
            ("maximumInFlight", limits.maximumInFlight),
            ("maximumBufferedBytes", limits.maximumBufferedBytes),
            ("maximumConnections", limits.maximumConnections ?? 1),
            ("maximumConnectionsPerAddress", limits.maximumConnectionsPerAddress ?? 1),
            ("maximumHandshakes", limits.maximumHandshakes),
            ("connectionRatePerAddress.burst", limits.connectionRatePerAddress?.burst ?? 1),
            ("kernelSendBuffer", limits.kernelSendBuffer ?? 1),
            ("requestRate.burst", limits.requestRate?.burst ?? 1),
            ("requestRatePerAddress.burst", limits.requestRatePerAddress?.burst ?? 1),
            ("requestRatePerIdentity.burst", limits.requestRatePerIdentity?.burst ?? 1),
            ("unproductiveFrameRate.burst", limits.unproductiveFrameRate?.burst ?? 1),
            ("strangers.maximumInFlight", limits.strangers.maximumInFlight),
            ("strangers.maximumPayloadLength", limits.strangers.maximumPayloadLength),
            ("hello.maximumConcurrentAuthentications", self.hello.maximumConcurrentAuthentications),
            ("cancelRate.burst", limits.cancelRate?.burst ?? 1),
            ("maximumSessionsPerIdentity", limits.maximumSessionsPerIdentity ?? 1),
            ("maximumInFlightPerIdentity", limits.maximumInFlightPerIdentity ?? 1),
        ] where value <= 0 {
            throw SocketError.invalid("\(name) must be above 0", endpoint: self.firstEndpoint)
        }
        for (name, time) in [
            ("idleTimeout", limits.idleTimeout), ("firstFrameTimeout", limits.firstFrameTimeout),
            ("readStallTimeout", limits.readStallTimeout), ("writeStallTimeout", limits.writeStallTimeout),
            ("minimumSilence", limits.minimumSilence),
            ("strangers.timeToBecomeKnown", limits.strangers.timeToBecomeKnown),
            ("handlerTimeout", limits.handlerTimeout),
        ] {
            guard let time, time <= .zero else { continue }
            throw .invalid("\(name) must be above 0; nil is for ever", endpoint: self.firstEndpoint)
        }
        guard limits.maximumBufferedBytesPerConnection > limits.maximumPayloadLength else {
            throw .invalid(
                """
                maximumBufferedBytesPerConnection (\(limits.maximumBufferedBytesPerConnection)) must be above \
                maximumPayloadLength (\(limits.maximumPayloadLength)), or no such payload could be received
                """,
                endpoint: self.firstEndpoint
            )
        }
        for (name, rate) in [
            ("requestRate", limits.requestRate), ("connectionRatePerAddress", limits.connectionRatePerAddress),
            ("requestRatePerAddress", limits.requestRatePerAddress),
            ("requestRatePerIdentity", limits.requestRatePerIdentity),
            ("unproductiveFrameRate", limits.unproductiveFrameRate), ("cancelRate", limits.cancelRate),
        ] {
            guard let rate, !(rate.perSecond > 0) else { continue }
            throw .invalid("\(name).perSecond must be above 0", endpoint: self.firstEndpoint)
        }
    }

    private var firstEndpoint: Endpoint? { self.listeners.first?.endpoint }

    private func check(_ listener: ServerListener, for router: Router) throws(SocketError) {
        func fail(_ message: String) -> SocketError {
            .invalid(message, endpoint: listener.endpoint)
        }
        guard (0...65_535).contains(listener.port) else {
            throw fail("cannot listen on \(listener.endpoint): a port is a number from 0 to 65535")
        }
        guard listener.backlog > 0, listener.listeningSockets > 0 else {
            throw fail("backlog and listeningSockets must be above 0")
        }
        let format = listener.wireFormat
        if let type = router.types.first(where: { !format.isCallType($0) }) {
            let types = format.layout.applicationTypes
            throw fail(
                """
                the router has a handler for type \(type), which belongs to the protocol or to pushes; in the wire format \(format) \
                applications use \(types.lowerBound) to \(types.upperBound)
                """
            )
        }
        guard self.heartbeat == nil || format.serverPing != nil else {
            throw fail("a server does not ping in the wire format \(format); leave heartbeat nil")
        }
        guard !self.hello.isRequired || format.supportsHello else {
            throw fail("hello is required, but the wire format \(format) cannot have it")
        }
        guard listener.webSocket == nil || listener.unixPath == nil else {
            throw fail("a Unix domain socket takes no WebSockets")
        }
        do throws(SocketError) {
            _ = try listener.webSocket?.settings(for: format)
            _ = try format.customFields(listener.header, in: .response)
        } catch {
            throw fail(error.message)
        }
    }
}
