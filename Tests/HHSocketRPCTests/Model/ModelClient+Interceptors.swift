// SPDX-License-Identifier: Apache-2.0
import HHSocket

/// The expected effects of interceptors. Each continues only when its valve is opened, before it asks and before it
/// returns.
extension ModelClient {
    /// The plan of one interceptor for a call.
    struct Interception: CustomStringConvertible {
        enum End: String { case passesOn = "passes on", answers, fails }

        /// The number of times that it calls `next`.
        var asks = 1
        /// Its last step. An interceptor that has not asked has nothing to pass on, and answers.
        var end = End.passesOn
        /// Whether it changes the body of the request.
        var changesBody = false

        var description: String { "asks \(self.asks)\(self.changesBody ? " other" : "") and \(self.end.rawValue)" }
    }

    /// The outcome of a call, or of an interceptor's request.
    struct Outcome: CustomStringConvertible {
        static let ok = Outcome(nil, .answered)

        /// Nil for an answer.
        var code: SocketError.Code?
        var delivery: SocketError.Delivery

        init(_ code: SocketError.Code?, _ delivery: SocketError.Delivery) {
            self.code = code
            self.delivery = delivery
        }

        var description: String { self.code.map { "\($0) \(self.delivery)" } ?? "ok" }
    }

    /// An interceptor that has begun.
    struct Interceptor {
        /// The body of its request.
        var body: String
        var asked = 0
        var last: Outcome?
    }

    mutating func beginInterception(_ index: Int) {
        self.calls[index].phase = .idle
        self.calls[index].interceptors = [Interceptor(body: self.calls[index].body)]
    }

    /// The calls whose interceptors stand at a valve.
    var standing: [Int] {
        self.calls.enumerated().compactMap { $1.interceptors.isEmpty || $1.isAsking ? nil : $0 }
    }

    /// Lets the active interceptor continue.
    mutating func openValve(_ index: Int) {
        let depth = self.calls[index].interceptors.count - 1
        guard depth >= 0, !self.calls[index].isAsking else { return }
        if self.calls[index].phase == .completed, self.limits.stopsInterceptors {
            self.log.append("\(index).\(depth) is told to stop")
        }
        let plan = self.calls[index].plan.interceptions[depth]
        guard self.calls[index].interceptors[depth].asked < plan.asks else { return self.returns(index, plan.end) }
        self.calls[index].interceptors[depth].asked += 1
        var body = self.calls[index].interceptors[depth].body
        if plan.changesBody { body += "\(self.calls[index].interceptors[depth].asked)" }
        if depth + 1 < self.calls[index].plan.interceptions.count {
            self.calls[index].interceptors.append(Interceptor(body: body))
        } else {
            self.ask(index, body)
        }
    }

    private mutating func ask(_ index: Int, _ body: String) {
        // Nothing more is sent for a call that has ended.
        guard self.calls[index].phase == .idle else {
            return self.notifyInterceptor(index, Outcome(.cancelled, .notSent))
        }
        self.calls[index].isAsking = true
        self.calls[index].body = body
        self.calls[index].attemptsOfAsking = 0
        self.calls[index].retries = 0
        self.calls[index].resends = 0
        self.attempt(index)
    }

    /// Passes the result of its request to the active interceptor.
    mutating func notifyInterceptor(_ index: Int, _ outcome: Outcome) {
        self.calls[index].isAsking = false
        let depth = self.calls[index].interceptors.count - 1
        self.calls[index].interceptors[depth].last = outcome
        self.log.append("\(index).\(depth) gets \(outcome)")
    }

    private mutating func returns(_ index: Int, _ end: Interception.End) {
        let last = self.calls[index].interceptors.removeLast().last
        let outcome: Outcome =
            switch end {
            case .passesOn: last ?? .ok
            case .answers: .ok
            case .fails: Outcome(.interceptorFailed, .notSent)
            }
        if !self.calls[index].interceptors.isEmpty {
            self.notifyInterceptor(index, outcome)
        } else if self.calls[index].phase == .idle {
            self.complete(index, outcome.code, outcome.delivery)
        }
    }
}
