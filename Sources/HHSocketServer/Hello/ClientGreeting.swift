// SPDX-License-Identifier: Apache-2.0
import HHSocketLink
import NIOCore

/// The session of a client that says hello.
protocol GreetingHost: AnyObject {
    /// The answer agrees on this.
    func agreed(_ agreement: Agreement, in turn: inout Turn)
    /// The client's token is refused: it needs another connection for another token. The answer to hello says why.
    func tokenWasRefused(in turn: inout Turn)
    /// Hello was answered, after the turn in which it came.
    func wasGreeted(in turn: inout Turn)
}

/// The hello of one client: its answer, for which the application may have to authenticate the client. On the event
/// loop.
final class ClientGreeting {
    private let link: Link<FrameLanguage>
    private let peer: ServerPeer
    private let counts: SessionCounts
    /// Authenticates the client, or waits for its turn to.
    private var authentication: Authentication?
    private var current: Agreement?
    private var hasGreeted = false
    /// Whether the transport compresses the frames: hello does not agree on compression then.
    private let isCompressed: Bool

    init(_ link: Link<FrameLanguage>, _ peer: ServerPeer, isCompressed: Bool = false) {
        self.link = link
        self.peer = peer
        self.counts = peer.loop.sessionCounts
        self.isCompressed = isCompressed
    }

    /// The results of hello; nil before.
    var agreement: Agreement? { self.current }
    var isUnderWay: Bool { self.authentication != nil }

    /// Handles the client's hello.
    func receive(_ frame: Frame, of session: ServerSession, _ host: any GreetingHost, in turn: inout Turn) {
        guard !self.hasGreeted else { return self.counts.count(.ignoredControlFrames) }
        self.hasGreeted = true
        // The hello was in time, however long authentication takes.
        self.peer.introductionChanged(isOver: true, now: turn.now)
        let parts = self.peer.parts
        var features =
            self.isCompressed ? parts.rules.hello.features.subtracting([.compression]) : parts.rules.hello.features
        if parts.rules.streams == nil { features.remove(.streams) } else { features.insert(.streams) }
        var answer = HelloAnswer.answer(
            to: frame.payload,
            features: features,
            windows: parts.rules.streams?.windows ?? StreamWindows(),
            maximumStreams: parts.rules.streams?.streamLimit ?? StreamTerms.defaultMaximumStreams
        )
        // Only the token of the hello is kept while it is checked.
        let token = answer.takeSessionToken()
        guard answer.agreement != nil, let authenticate = parts.rules.hello.authenticate else {
            return self.greet(answer, host, in: &turn)
        }
        let bound = NIOLoopBound((greeting: self, host: host), eventLoop: self.link.loop.eventLoop)
        self.authentication = parts.services.authentications.begin(from: .init(session.remoteAddress)) { [answer] in
            var answer = answer
            var isOurFault = false
            do {
                session.authenticate(as: try await authenticate(token, session))
            } catch let error as StatusError {
                answer.refuse(error.status == .ok ? .unknown : error.status)
            } catch {
                isOurFault = true
                answer.refuse(.overloaded)
                if !Task.isCancelled {
                    parts.books.peerLog.write(
                        .error,
                        "a client cannot be authenticated",
                        metadata: ["error": "\(error)"],
                        by: session.logger
                    )
                }
            }
            session.port.onLoop { [answer, isOurFault] _, turn in
                let (greeting, host) = bound.value
                greeting.greet(answer, host, in: &turn)
                host.wasGreeted(in: &turn)
                // If it stayed connected, it would have no identity for the connection's lifetime.
                if isOurFault { greeting.dismissUnauthenticated(in: &turn) }
            }
        } refused: {
            session.port.onLoop { bound.value.greeting.refuseAuthentication(bound.value.host, in: &$1) }
        }
        guard self.authentication != nil else { return self.refuseAuthentication(host, in: &turn) }
        self.peer.authenticationChanged(isUnderWay: true, now: turn.now)
    }

    /// Ends the authentication, since the client goes.
    func cancel() { self.authentication?.cancel() }

    /// Too many authentications wait.
    private func refuseAuthentication(_ host: any GreetingHost, in turn: inout Turn) {
        guard self.link.phase == .open else { return }
        self.counts.count(.authenticationsRefused)
        self.greet(.refusal(.overloaded), host, in: &turn)
        self.dismissUnauthenticated(in: &turn)
    }

    /// Closes a client that could not be authenticated, with a random delay so that clients do not all reconnect at
    /// once.
    private func dismissUnauthenticated(in turn: inout Turn) {
        self.peer.ends(.refused)
        let wait = Farewell.randomAbsence
        self.peer.say(
            Farewell(kind: .departure, reason: "authentication is not available", retryAfter: wait),
            in: &turn
        )
    }

    private func greet(_ answer: HelloAnswer, _ host: any GreetingHost, in turn: inout Turn) {
        self.authentication = nil
        guard self.link.phase == .open else { return }
        self.peer.authenticationChanged(isUnderWay: false, now: turn.now)
        self.counts.count(.hellos)
        var answer = answer
        // A client that stays a stranger may not compress, and need not learn it from a refusal.
        if self.peer.lacksIdentity { answer.withhold(.compression) }
        self.link.send(
            Frame(type: FrameType.hello, serial: FrameSerial.hello, status: answer.status, payload: answer.payload),
            in: &turn
        )
        guard let agreement = answer.agreement else {
            self.peer.log("a client's hello is refused", "status \(answer.status)")
            guard answer.status != .noPermission else { return host.tokenWasRefused(in: &turn) }
            // It may say hello again; if it must, the deadline for the first frame applies again.
            self.hasGreeted = false
            if self.peer.parts.rules.hello.isRequired { self.peer.introductionChanged(isOver: false, now: turn.now) }
            return
        }
        self.current = agreement
        self.link.expectFlags(agreement.flags)
        host.agreed(agreement, in: &turn)
    }
}
