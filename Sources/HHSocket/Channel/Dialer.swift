// SPDX-License-Identifier: Apache-2.0
import NIOCore
import NIOSSL

/// Opens connections, and closes those that are no longer needed. Lives on the socket thread.
final class Dialer: @unchecked Sendable {
    // Proof of Sendable: the constants are Sendable themselves; the variables are accessed only on the event loop.
    let eventLoop: any EventLoop
    let configuration: SocketConfiguration
    let maker: any LinkMaker
    /// The clock, network and chance, where they are not the system's.
    let world: DriverWorld?
    /// The reason why no attempt can succeed; nil if attempts can.
    private let refusal: SocketError?
    /// The configuration's TLS; nil where it has none.
    let tls: ClientTLSContext?
    /// The TLS of `wss` where the configuration has none, once it was needed.
    private lazy var defaultTLS = ClientTLSContext(ClientTLS())
    var openings = OpeningOrder()
    var attempts: [ConnectionID: Attempt] = [:]
    /// The number of attempts whose future is not completed, including abandoned ones.
    private var unfinished = 0
    private var finishedPromise: EventLoopPromise<Void>?

    struct Attempt {
        var endpoint: Endpoint
        /// Name resolution may lead to several.
        var channels: [any Channel] = []
        var stage = Stage.connecting
        /// The request to open a WebSocket, once it was made.
        var opening: WebSocketOpening?
        /// The agreement on a WebSocket.
        var agreement: OpeningAgreement?
        /// Abandons the work for which the attempt waits, if it may take long.
        var abandonWork: () -> Void = {}
    }

    /// The stage that an attempt has reached, for the error when it fails or times out.
    enum Stage: Equatable {
        /// The app decides whether to connect.
        case admission
        /// Looking up this name.
        case resolving(String)
        /// Connecting, to the proxy if there is one.
        case connecting
        /// Connected to the proxy, which has not connected to the server yet.
        case proxy
        case tls
        /// The app prepares the request to open a WebSocket.
        case preparing
        /// The server has not answered the request to open a WebSocket.
        case opening
    }

    init(
        eventLoop: any EventLoop,
        configuration: SocketConfiguration,
        refusal: SocketError?,
        maker: any LinkMaker,
        world: DriverWorld? = nil
    ) {
        self.eventLoop = eventLoop
        self.maker = maker
        self.world = world
        self.configuration = configuration
        self.refusal = refusal
        self.tls = configuration.tls.map { ClientTLSContext($0) }
    }

    /// Opens a connection, including proxy, TLS and WebSocket.
    ///
    /// - Parameters:
    ///   - makeLink: Makes the last handler of the pipeline of a connected channel, given the agreement on a WebSocket.
    ///   - completion: Called once, on the socket thread and after this method has returned; never once the attempt is
    ///     abandoned.
    func dial(
        _ id: ConnectionID,
        _ endpoint: Endpoint,
        makeLink: @escaping (OpeningAgreement?) throws(SocketError) -> any MadeLink,
        completion: @escaping (Result<any MadeLink, AttemptFailure>) -> Void
    ) {
        // Both are called on the event loop, which this is.
        let makeLink = NIOLoopBound(makeLink, eventLoop: self.eventLoop)
        let completion = NIOLoopBound(completion, eventLoop: self.eventLoop)
        self.attempts[id] = Attempt(endpoint: endpoint)
        let plan: Plan
        do throws(SocketError) {
            plan = try self.plan(endpoint)
        } catch {
            self.eventLoop.execute {
                guard self.attempts.removeValue(forKey: id) != nil else { return }
                completion.value(.failure(AttemptFailure(error: error, blame: .server)))
            }
            return
        }
        self.unfinished += 1
        let timeout = TimeAmount(clamping: self.configuration.connectTimeout)
        let timer = self.configuration.time.schedule(in: timeout, on: self.eventLoop) {
            self.timedOut(id, completion.value)
        }
        self.admit(id)
            .flatMap { self.reach(id, plan) }
            .flatMapThrowing { channel in
                guard let attempt = self.attempts[id] else {
                    channel.close(promise: nil)
                    throw CancellationError()
                }
                let made = try makeLink.value(attempt.agreement)
                try channel.pipeline.syncOperations.addHandler(made.link)
                return NIOLoopBound(made, eventLoop: self.eventLoop)
            }
            .whenComplete { result in
                timer.cancel()
                self.unfinished -= 1
                self.openings.finish(id)
                if let attempt = self.attempts.removeValue(forKey: id) {
                    // The channel may still be open, for example if the TLS handler could not be made.
                    if case .failure = result { attempt.end() }
                    completion.value(
                        result.map { $0.value }.mapError { self.failure(of: plan, in: attempt.stage, because: $0) }
                    )
                } else if case .success(let made) = result {
                    made.value.link.kill()
                }
                if self.unfinished == 0 { self.finishedPromise?.succeed() }
            }
    }

    /// Completes when the app admits the attempt, where it wants to be asked.
    private func admit(_ id: ConnectionID) -> EventLoopFuture<Void> {
        guard let admit = self.maker.handshake?.admission?.check() else {
            return self.eventLoop.makeSucceededVoidFuture()
        }
        let admission = AbandonableResult<Void>(on: self.eventLoop)
        self.begin(.admission, of: id, awaiting: admission)
        admission.complete(with: admit)
        return admission.futureResult
    }

    /// Connects to one server: the listed one, or one that it redirects to.
    func reach(_ id: ConnectionID, _ plan: Plan) -> EventLoopFuture<any Channel> {
        self.attempts[id]?.stage = .connecting
        return self.prepareTLS(id, plan)
            .flatMap { context in
                self.connect(id, plan.proxy?.endpoint ?? plan.server, hasTLS: plan.tls != nil)
                    .flatMap { channel in self.tunnel(channel, for: id, plan: plan).map { channel } }
                    .flatMap { channel in self.secure(channel, for: id, plan: plan, context: context).map { channel } }
            }
            .flatMap { channel in
                guard let redirects = plan.redirects else { return self.eventLoop.makeSucceededFuture(channel) }
                return self.open(channel, for: id, plan: plan, redirects: redirects)
            }
    }

    // MARK: Before anything is sent

    /// The details of an attempt, found out before it is made.
    struct Plan: Sendable {
        /// The listed server.
        var endpoint: Endpoint
        /// The server to connect to: the listed one, unless that has redirected.
        var server: Endpoint
        var proxy: Proxy?
        /// The exchange with the proxy, if there is one.
        var negotiation: (any ProxyNegotiation)?
        /// The TLS settings; nil without TLS.
        var tls: ClientTLS?
        /// The name that the certificate must have; nil for the address that is connected to.
        var serverName: String?
        /// The address of the WebSocket, and the redirects that led to it; nil without a WebSocket.
        var redirects: RedirectRules?
    }

    private func plan(_ endpoint: Endpoint) throws(SocketError) -> Plan {
        guard endpoint.unixPath?.isEmpty == false || (1...65_535).contains(endpoint.port) && !endpoint.host.isEmpty
        else {
            throw .invalid(
                "cannot connect to \(endpoint): a host and a port from 1 to 65535 are needed",
                endpoint: endpoint
            )
        }
        do throws(SocketError) {
            if let refusal = self.refusal { throw refusal }
            return try self.plan(
                endpoint,
                to: endpoint,
                redirects: endpoint.webSocketTarget.map { RedirectRules(from: $0) }
            )
        } catch {
            var error = error
            error.endpoint = endpoint
            throw error
        }
    }

    /// - Parameters:
    ///   - endpoint: The listed server.
    ///   - server: The server to connect to.
    func plan(
        _ endpoint: Endpoint,
        to server: Endpoint,
        redirects: RedirectRules?
    ) throws(SocketError) -> Plan {
        let server = server.tcpAddress
        var plan = Plan(endpoint: endpoint, server: server, tls: self.configuration.tls, redirects: redirects)
        if let proxy = self.proxy(for: server) {
            plan.proxy = proxy
            plan.negotiation = try proxy.negotiation(to: server)
        }
        try self.configuration.addressFamilies.check(server, through: plan.proxy)
        if let redirects {
            plan.tls = try self.tls(endpoint, redirects)
            if server.host != endpoint.host { plan.tls?.serverName = nil }
            // Nor does the client prove its identity to a server that another one has chosen.
            if !redirects.isOfOneOrigin { plan.tls?.identity = nil }
        }
        if let tls = plan.tls {
            plan.serverName = try self.serverName(tls, server).map { HostName.indication(of: $0) }
        }
        return plan
    }

    /// The TLS of a WebSocket, by its scheme.
    private func tls(_ endpoint: Endpoint, _ redirects: RedirectRules) throws(SocketError) -> ClientTLS? {
        if redirects.target.isSecure { return self.configuration.tls ?? ClientTLS() }
        guard self.configuration.tls == nil || redirects.count > 0 else {
            throw .invalid("cannot connect to \(endpoint): ws is without TLS, which is configured; write wss")
        }
        return nil
    }

    /// A Unix domain socket is on this machine's file system, where no proxy can go.
    private func proxy(for endpoint: Endpoint) -> Proxy? {
        endpoint.unixPath == nil ? self.configuration.proxy : nil
    }

    /// Prepares the TLS context before a connection is opened; nil without TLS.
    private func prepareTLS(_ id: ConnectionID, _ plan: Plan) -> EventLoopFuture<NIOSSLContext?> {
        guard plan.tls != nil else { return self.eventLoop.makeSucceededFuture(nil) }
        return (self.tls ?? self.defaultTLS)
            .get(on: self.eventLoop, withIdentity: plan.redirects?.isOfOneOrigin ?? true)
            .flatMapThrowing { context in
                // The attempt may have been abandoned while files were read.
                guard self.attempts[id] != nil else { throw CancellationError() }
                return context
            }
    }

    private func serverName(_ tls: ClientTLS, _ endpoint: Endpoint) throws(SocketError) -> String? {
        if let name = tls.serverName {
            guard !name.isEmpty, !Endpoint(host: name, port: 1).isAddress else {
                throw .invalid(
                    "cannot connect to \(endpoint): ClientTLS.serverName takes a host's name, not \"\(name)\""
                )
            }
            return name
        }
        if let name = endpoint.serverName, !name.isEmpty, !Endpoint(host: name, port: 1).isAddress { return name }
        if endpoint.unixPath == nil, !endpoint.isAddress { return endpoint.host }
        // An address is searched among the certificate's addresses, so the channel must have it. Behind a proxy the
        // channel's address is the proxy's, and a certificate for that would be accepted for any server.
        let proxy = self.proxy(for: endpoint)
        guard endpoint.unixPath != nil || proxy != nil, !tls.insecurelySkipsVerification else { return nil }
        throw .invalid(
            "cannot connect to \(endpoint)\(proxy.through): there is no name to verify in the "
                + "certificate; set ClientTLS.serverName"
        )
    }

    /// Requests the connection to the server from the proxy, if there is one.
    private func tunnel(_ channel: any Channel, for id: ConnectionID, plan: Plan) -> EventLoopFuture<Void> {
        guard let negotiation = plan.negotiation else { return self.eventLoop.makeSucceededVoidFuture() }
        self.attempts[id]?.stage = .proxy
        let done = self.eventLoop.makePromise(of: Void.self)
        do {
            try channel.pipeline.syncOperations.addHandler(ProxyHandshake(negotiation, done: done))
        } catch {
            // It has been closed already.
            done.fail(negotiation.closed())
        }
        return done.futureResult
    }

    private func secure(
        _ channel: any Channel,
        for id: ConnectionID,
        plan: Plan,
        context: NIOSSLContext?
    ) -> EventLoopFuture<Void> {
        guard let context, let tls = plan.tls else {
            return self.eventLoop.makeSucceededVoidFuture()
        }
        self.attempts[id]?.stage = .tls
        let done = self.eventLoop.makePromise(of: Void.self)
        do {
            let handler = try NIOSSLClientHandler(context: context, serverHostname: plan.serverName)
            let name = tls.insecurelySkipsVerification ? nil : plan.serverName.map { HostName($0) }
            let handshake = TLSHandshake(name: name, pins: tls.pins, done: done)
            // This handler first, because otherwise the handshake might finish before it is added.
            try channel.pipeline.syncOperations.addHandler(handshake)
            try channel.pipeline.syncOperations.addHandler(handler, position: .first)
        } catch {
            done.fail(error)
        }
        return done.futureResult
    }

    // MARK: Ends

    private func failure(of plan: Plan, in stage: Stage, because error: any Error) -> AttemptFailure {
        let blame: AttemptFailure.Blame
        switch stage {
        case .admission, .preparing: blame = .application((error as? HandshakeRefusal)?.remedy ?? .trySameServer)
        case .resolving, .connecting, .proxy, .tls, .opening: blame = .server
        }
        return AttemptFailure(error: self.error(of: plan, in: stage, because: error), blame: blame)
    }

    private func error(of plan: Plan, in stage: Stage, because error: any Error) -> SocketError {
        if stage == .admission || stage == .preparing { return .preparing(plan.endpoint, stage, failedWith: error) }
        if var known = error as? SocketError {
            known.endpoint = plan.endpoint
            return known
        }
        return .connecting(
            to: plan.endpoint,
            through: plan.proxy,
            stage,
            failedWith: error,
            timeout: self.configuration.connectTimeout
        )
    }

    private func timedOut(
        _ id: ConnectionID,
        _ completion: (Result<any MadeLink, AttemptFailure>) -> Void
    ) {
        // A server that has refused has answered, although its reasons do not end.
        if self.attempts[id]?.opening?.endBody() == true { return }
        guard let attempt = self.attempts.removeValue(forKey: id) else { return }
        self.openings.finish(id)
        let timeout = self.configuration.connectTimeout
        let proxy = self.proxy(for: attempt.endpoint)
        var failure = AttemptFailure(
            error: SocketError(.connectTimeout, message: "", endpoint: attempt.endpoint),
            blame: .server
        )
        let reason: String
        switch attempt.stage {
        case .admission:
            reason = "the session token was not there within \(timeout)"
            failure.blame = .application(.trySameServer)
        case .preparing:
            reason = "WebSocketOptions.prepare did not return within \(timeout)"
            failure.blame = .application(.trySameServer)
        case .resolving(let host):
            reason = "the name \(host) could not be resolved within \(timeout); check the DNS and the network"
            failure.error.code = .hostNotFound
            failure.blame = .network
        case .connecting where proxy != nil:
            reason = "no answer from the proxy within \(timeout); its host may be down or behind a firewall"
        case .connecting:
            reason = "no answer within \(timeout); the host may be down or behind a firewall"
        case .proxy:
            reason =
                "the proxy did not connect us within \(timeout); the server may be down, or the peer may not be a proxy"
        case .tls:
            reason = "the TLS handshake was not over within \(timeout); check that it speaks TLS on this port"
        case .opening:
            reason =
                "the server did not open a WebSocket within \(timeout); check that it speaks WebSocket on this port"
        }
        failure.error.message = "cannot connect to \(attempt.endpoint)\(proxy.through): \(reason)"
        attempt.end()
        completion(.failure(failure))
    }

    /// Notes that an attempt waits for work that may take long, and that is abandoned with it.
    func begin(_ stage: Stage, of id: ConnectionID, awaiting work: AbandonableResult<some Sendable>) {
        // It may have been abandoned already.
        guard self.attempts[id] != nil else { return work.abandon() }
        self.attempts[id]?.stage = stage
        self.attempts[id]?.abandonWork = { work.abandon() }
    }

    /// Abandons an attempt in progress. Returns false if there is none with this ID.
    func abandon(_ id: ConnectionID) -> Bool {
        guard let attempt = self.attempts.removeValue(forKey: id) else { return false }
        self.openings.finish(id)
        attempt.end()
        return true
    }

    /// Completes when no attempt is in progress, including abandoned ones: a thread that ended earlier could
    /// not receive the end of their channels. Must be called once; no attempt may begin after it.
    func whenFinished() -> EventLoopFuture<Void> {
        let promise = self.eventLoop.makePromise(of: Void.self)
        self.finishedPromise = promise
        if self.unfinished == 0 { promise.succeed() }
        return promise.futureResult
    }
}

extension Dialer.Attempt {
    /// Closes the channels, and abandons the work for which it waits.
    fileprivate func end() {
        self.abandonWork()
        for channel in self.channels { channel.close(promise: nil) }
    }
}

/// The end of an attempt without a connection.
struct AttemptFailure: Error {
    /// The party at fault.
    enum Blame: Hashable, Sendable {
        /// The server, or a proxy in front of it; or nobody knows.
        case server
        /// The DNS. Another server may be reachable.
        case network
        /// The app, which did not provide what an attempt needs. Other servers need the same.
        case application(HandshakeRefusal.Remedy)
    }

    var error: SocketError
    var blame: Blame
}
