// SPDX-License-Identifier: Apache-2.0
import HHSocketLink
import NIOCore

/// A request before its body is examined.
struct ReceivedRequest: ~Copyable {
    /// The frame without its envelope. It is owned once the request is admitted.
    var frame: ArrivedFrame
    var extras: ServerContext.Extras?
    /// The length of the received payload in bytes.
    let length: Int
    var isCompressed = false
    /// Whether a handler has its type.
    var hasHandler = false
}

/// Decides whether a client's request is begun, and reads what it brings beside its body.
struct RequestGate {
    typealias Refusal = SessionMachine<Task<Void, Never>>.Refusal

    /// The client as far as the decision depends on it.
    struct Client {
        var session: ServerSession
        var isStranger: Bool
        var hasAgreed: Bool
    }

    private let rules: RequestRules
    private let listener: ListenerSettings
    private var rate: TokenBucket?

    init(_ rules: RequestRules, _ listener: ListenerSettings, now: NIODeadline) {
        self.rules = rules
        self.listener = listener
        self.rate = rules.limits.requestRate.map { TokenBucket($0, now: now) }
    }

    /// Returns the reason why a valid request is not begun; nil if it is begun.
    ///
    /// - Parameter objection: The reason why a stream cannot be opened.
    mutating func refusal(
        of arrival: borrowing ReceivedRequest,
        from client: Client,
        _ rules: RouteRules,
        now: NIODeadline,
        objection: () -> Refusal?
    ) -> Refusal? {
        if self.rules.hello.isRequired, !client.hasAgreed { return .noHello }
        guard self.take(from: client.session, now: now) else { return .rate }
        if let status = rules.refusal(of: self.header(of: arrival), client.session) { return .admission(status) }
        if arrival.isCompressed, client.isStranger { return .compression }
        if rules.excludes(length: arrival.frame.length, isCompressed: arrival.isCompressed) {
            return .bodyLength
        }
        if let deadline = arrival.extras?.deadline, deadline <= now { return .deadline }
        return objection()
    }

    /// Charges a request to the rates of the connection, its address and its identity; returns false if one of them is
    /// used up.
    private mutating func take(from session: ServerSession, now: NIODeadline) -> Bool {
        guard self.rules.hasRequestRates else { return true }
        if self.rate?.take(now: now) == false { return false }
        if let rates = self.rules.addressRates, let origin = ClientAddress(session.remoteAddress),
            !rates.take(origin, now: now)
        {
            return false
        }
        if let rates = self.rules.identityRates, let identity = session.identity {
            return rates.take(identity, now: now)
        }
        return true
    }

    // MARK: What a request brings

    func header(of arrival: borrowing ReceivedRequest) -> RequestHeader {
        RequestHeader(
            type: arrival.frame.type,
            serial: arrival.frame.serial,
            length: arrival.frame.length,
            isCompressed: arrival.isCompressed,
            fields: self.listener.format.header(of: arrival.frame, in: .request),
            hasHandler: arrival.hasHandler,
            extras: arrival.extras
        )
    }

    func request(_ frame: consuming ArrivedFrame) -> ServerRequest {
        let (type, serial) = (frame.type, frame.serial)
        let header = self.listener.format.header(of: frame, in: .request)
        return ServerRequest(type: type, serial: serial, body: frame.takePayload().lend(), header: header)
    }

    func emptyAnswer(to frame: borrowing ArrivedFrame, _ status: Status = .ok) -> Frame {
        Frame(
            type: frame.type,
            serial: frame.serial,
            status: status,
            customFields: self.listener.format.responseFields(
                answering: frame.customFields,
                over: self.listener.customFields
            )
        )
    }

    /// Returns the data that a handler gets beside the request; nil if nothing was agreed on.
    func extras(
        _ metadata: WireMetadata?,
        _ agreement: Agreement?,
        isStranger: Bool,
        now: NIODeadline
    ) -> ServerContext.Extras? {
        guard let agreement, agreement.has(.metadata) else { return nil }
        guard let metadata else { return ServerContext.Extras() }
        let key = metadata.idempotencyKey
        return ServerContext.Extras(
            metadata: metadata.values,
            deadline: metadata.hasDeadline
                ? now.advanced(clamping: .milliseconds(Int64(clamping: metadata.deadline))) : nil,
            // Nothing is kept for strangers.
            idempotencyKey: key.isEmpty || !agreement.has(.idempotency) || isStranger ? nil : key
        )
    }

    /// The time at which a request is answered 408, and whether it is the server's limit.
    func deadline(of arrival: borrowing ReceivedRequest, _ rules: RouteRules, now: NIODeadline) -> (
        NIODeadline, isOurs: Bool
    )? {
        let ours = rules.timeout.map { now.advanced(clamping: $0) }
        guard let theirs = arrival.extras?.deadline else { return ours.map { ($0, true) } }
        if let ours, ours < theirs { return (ours, true) }
        return (theirs, false)
    }
}

/// The envelope of answers.
enum AnswerSeal {
    /// A larger answer that is made on the event loop is not compressed: the loop's other connections would wait for
    /// it. It is about a millisecond's work.
    static let largestBodyCompressedOnLoop = 64 << 10

    /// Adds the agreed envelope to an answer's body.
    static func seal(
        _ answer: inout Frame,
        metadata: [String: String],
        by agreement: Agreement?,
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
