// SPDX-License-Identifier: Apache-2.0
import HHSocketLink
import NIOCore

/// The rules of a server for its clients and their requests. They do not change while it runs.
final class RequestRules: Sendable {
    let routes: [UInt32: Router.Route]
    /// The route for requests of other types; nil: they are refused at once.
    let unknownTypeRoute: Router.Route?
    /// The rules of requests that have no route.
    let unknownRules: RouteRules
    /// Whether the router refuses clients without an identity most requests.
    let requiresIdentity: Bool
    let connections: ConnectionPolicy
    let limits: ServerLimits
    let heartbeat: HeartbeatPolicy?
    let answersInOrder: Bool
    /// The limits on streams; nil if hello does not agree on streams.
    let streams: StreamPolicy?
    let hello: ServerHello
    /// The rates of requests by address and by identity; nil if there are none.
    let addressRates: SharedRates<ClientAddress>?
    let identityRates: SharedRates<String>?

    init(_ configuration: ServerConfiguration, _ router: Router, blockingOn threads: BlockingThreads) {
        let limits = configuration.limits
        self.limits = limits
        let defaults = RouteLimits(timeout: limits.handlerTimeout, concurrency: limits.concurrency)
        self.routes = router.routes(blockingOn: threads, defaults: defaults)
        self.unknownTypeRoute = router.unknownTypeRoute(defaults: defaults)
        self.unknownRules = RouteRules(observers: router.observers)
        self.requiresIdentity = router.requiresIdentity
        self.connections = configuration.connections
        self.heartbeat = configuration.heartbeat
        self.answersInOrder = configuration.answersInOrder
        self.streams = configuration.answersInOrder ? nil : configuration.streams
        self.hello = configuration.hello
        self.addressRates = SharedRates(limits.requestRatePerAddress)
        self.identityRates = SharedRates(limits.requestRatePerIdentity)
    }

    /// Returns whether a client accepts an answer of this length, and logs if it does not.
    func takes(answerOf length: Int, type: UInt32, _ session: ServerSession) -> Bool {
        let limit = self.limits.maximumAnswerLength
        guard length > limit else { return true }
        session.peerLog.write(
            .error,
            "an answer is too large",
            metadata: ["type": "\(type)", "bytes": "\(length)", "maximumAnswerLength": "\(limit)"],
            by: session.logger
        )
        return false
    }

    /// Whether a client is a stranger until its hello or its identity is accepted.
    var hasStrangers: Bool { self.hello.isRequired || self.requiresIdentity }

    /// Whether each request is counted against a rate.
    var hasRequestRates: Bool {
        self.limits.requestRate != nil || self.addressRates != nil || self.identityRates != nil
    }
}
