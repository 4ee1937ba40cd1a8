// SPDX-License-Identifier: Apache-2.0
import Foundation
import HHSocket
import NIOCore

/// The agreement between client and server, and the envelopes that follow from it.
extension ServerConnection {
    /// Handles the client's hello.
    func receiveHello(_ frame: Frame, in turn: inout Turn) {
        self.hot.machine.receivedUnproductive()
        guard !self.greeting.hasGreeted, let session = self.hot.serverContext?.session else {
            self.hot.machine.statistics.ignoredControlFrames += 1
            return
        }
        self.greeting.hasGreeted = true
        // The hello was in time, however long authentication takes.
        self.hot.watching.watch.firstFrameCame()
        let settings = self.core.hello
        var features = self.greeting.isCompressed ? settings.features.subtracting([.compression]) : settings.features
        let policy = self.core.streams
        if policy == nil { features.remove(.streams) } else { features.insert(.streams) }
        var answer = HelloAnswer.answer(
            to: frame.payload,
            features: features,
            windows: policy?.windows ?? StreamWindows(),
            maximumStreams: policy?.streamLimit ?? StreamTerms.defaultMaximumStreams
        )
        if answer.agreement != nil,
            case .refuse(let status)? = self.core.connections.admitHello?(ReceivedHello(answer), session)
        {
            answer.refuse(status == .ok ? .unknown : status)
        }
        // Only the token of the hello is kept while it is checked.
        let token = answer.takeSessionToken()
        guard answer.agreement != nil, let authenticate = settings.authenticate else {
            return self.greet(answer, in: &turn)
        }
        let core = self.core
        self.greeting.authentication = core.authentications.begin(from: .init(session.remoteAddress)) { [answer] in
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
                    core.peerLog.write(
                        .error,
                        "a client cannot be authenticated",
                        ["error": "\(error)"],
                        by: session.logger
                    )
                }
            }
            session.onLoop { [answer, isOurFault] connection, turn in
                connection.greet(answer, in: &turn)
                connection.takeStatistics()
                connection.finishIfDone(in: &turn)
                // If it stayed connected, it would have no identity for the connection's lifetime.
                if isOurFault { connection.dismissUnauthenticated(in: &turn) }
            }
        } refused: {
            session.onLoop { $0.refuseAuthentication(in: &$1) }
        }
        guard self.greeting.authentication != nil else { return self.refuseAuthentication(in: &turn) }
        self.hot.watching.watch.authenticationChanged(isUnderWay: true, now: turn.now)
    }

    /// Too many authentications wait.
    private func refuseAuthentication(in turn: inout Turn) {
        guard self.hot.phase == .open else { return }
        self.hot.machine.statistics.authenticationsRefused += 1
        self.greet(.refusal(.overloaded), in: &turn)
        self.dismissUnauthenticated(in: &turn)
    }

    /// Closes a client that could not be authenticated, with a random delay so that clients do not all reconnect at
    /// once.
    private func dismissUnauthenticated(in turn: inout Turn) {
        self.ends(.refused)
        let notice = GoAway(reason: "authentication is not available", retryAfter: Self.randomAbsence)
        self.dismiss(notice, in: &turn)
    }

    /// Closes a client whose token is refused, which needs another connection for another token. The answer to hello
    /// says why.
    private func dismissRefused(in turn: inout Turn) {
        self.ends(.refused)
        self.stopHandlers()
        self.takeStatistics()
        self.finish(within: Self.protocolErrorTime, in: &turn)
    }

    private func greet(_ answer: HelloAnswer, in turn: inout Turn) {
        self.greeting.authentication = nil
        guard self.hot.phase == .open else { return }
        self.hot.watching.watch.authenticationChanged(isUnderWay: false, now: turn.now)
        self.hot.machine.statistics.hellos += 1
        var answer = answer
        // A client that stays a stranger may not compress, and need not learn it from a refusal.
        if self.lacksIdentity { answer.withhold(.compression) }
        self.link.send(
            Frame(type: FrameType.hello, serial: FrameSerial.hello, status: answer.status, payload: answer.payload),
            in: &turn
        )
        guard let agreement = answer.agreement else {
            self.log("a client's hello is refused", "status \(answer.status)")
            guard answer.status != .noPermission else { return self.dismissRefused(in: &turn) }
            // It may say hello again; if it must, the deadline for the first frame applies again.
            self.greeting.hasGreeted = false
            if self.core.hello.isRequired { self.hot.watching.watch.awaitFirstFrame(now: turn.now) }
            return
        }
        self.greeting.agreement = agreement
        self.link.expectFlags(agreement.flags)
        self.hot.serverContext?.session.agree(agreement)
        self.hot.fastPath.agreed(agreement, core: self.core)
        if let terms = agreement.streams { self.beginStreams(terms, flags: agreement.flags) }
        self.updateStanding(in: &turn)
        self.hot.fastPath.extras = self.extras(nil, now: turn.now)
    }

    /// Returns the envelope of a request's frame, whose body stays compressed if it is.
    ///
    /// - Returns: Nil if that cannot be found out: the request has been answered.
    func open(_ frame: Frame, in turn: inout Turn) -> Envelope? {
        do throws(EnvelopeError) {
            return try Envelope.openCompressed(
                type: frame.type,
                payload: frame.payload,
                agreedFlags: self.greeting.agreement?.flags ?? 0
            )
        } catch {
            var opened = frame
            opened.type &= ~FrameType.allFlags
            self.line.order?.reserve()
            let number = self.hot.machine.receivedIllegal()
            let arrival = ReceivedRequest(frame: opened, length: frame.payload.readableBytes)
            self.refused(arrival, self.core.unknownRules, .illegalFormat)
            self.answer(self.emptyAnswer(to: opened, .illegalFormat), number, in: &turn)
            return nil
        }
    }

    /// Returns the data that a handler gets beside the request; nil if nothing was agreed on.
    func extras(_ metadata: WireMetadata?, now: NIODeadline) -> ServerContext.Extras? {
        guard let agreement = self.greeting.agreement, agreement.has(.metadata) else { return nil }
        guard let metadata else { return ServerContext.Extras() }
        let key = metadata.idempotencyKey
        return ServerContext.Extras(
            metadata: metadata.values,
            deadline: metadata.hasDeadline
                ? now.advanced(clamping: self.core.allowed(.milliseconds(Int64(clamping: metadata.deadline)))) : nil,
            // Nothing is kept for strangers.
            idempotencyKey: key.isEmpty || !agreement.has(.idempotency) || self.greeting.isStranger ? nil : key
        )
    }

    /// Adds the agreed envelope to an answer's body.
    static func seal(
        _ answer: inout Frame,
        _ metadata: [String: String],
        _ agreement: Agreement?,
        _ compression: CompressionPolicy?
    ) {
        guard let agreement else { return }
        let values = metadata.isEmpty || !agreement.has(.metadata) ? nil : WireMetadata(values: metadata)
        let policy = agreement.has(.compression) ? compression : nil
        guard values != nil || policy != nil else { return }
        // Metadata that is too long is omitted: the body matters more.
        let sealed =
            (try? Envelope.seal(answer, metadata: values, compression: policy))
            ?? (try? Envelope.seal(answer, metadata: nil, compression: policy))
        if let sealed { answer = sealed }
    }
}
