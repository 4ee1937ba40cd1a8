// SPDX-License-Identifier: Apache-2.0
import HHSocketLink

/// State for the fast path of a synchronous request.
struct FastPath {
    /// Whether only the session machine decides whether a synchronous handler runs.
    private(set) var isOpen: Bool
    /// Whether that is so where no frame may be the last piece of a payload.
    private var isOpenWithoutPieces: Bool
    private var arePiecesAwaited = false
    /// A larger answer is not copied, is too large, or may be compressed.
    private(set) var largestAnswer: Int
    /// The object in which handlers may set metadata of their answers, for requests that bring none.
    var extras: ServerContext.Extras?

    init(rules: RequestRules, listener: ListenerSettings) {
        // The fast path neither counts requests nor keeps them in order, and needs a format whose frames are built in
        // one go.
        self.isOpen = Self.isOpen(rules: rules, listener: listener, isStranger: rules.hasStrangers)
        self.isOpenWithoutPieces = self.isOpen
        self.largestAnswer = min(FrameSession.largestCopiedBody, rules.limits.maximumAnswerLength)
    }

    private static func isOpen(rules: RequestRules, listener: ListenerSettings, isStranger: Bool) -> Bool {
        !isStranger && !rules.answersInOrder && !rules.hasRequestRates && listener.isStandard
    }

    /// Updates the path when the client's identity has become known or was withdrawn.
    mutating func standingChanged(isStranger: Bool, rules: RequestRules, listener: ListenerSettings) {
        self.isOpenWithoutPieces = Self.isOpen(rules: rules, listener: listener, isStranger: isStranger)
        self.isOpen = self.isOpenWithoutPieces && !self.arePiecesAwaited
    }

    /// Updates the path when pieces of payloads are awaited, or no longer: the last piece looks like a whole frame.
    mutating func piecesChanged(areAwaited: Bool) {
        self.arePiecesAwaited = areAwaited
        self.isOpen = self.isOpenWithoutPieces && !areAwaited
    }

    /// Hello has led to an agreement.
    mutating func agreed(_ agreement: Agreement, rules: RequestRules) {
        if agreement.has(.compression), let compression = rules.hello.compression {
            self.largestAnswer = min(self.largestAnswer, max(compression.minimumLength, 0) - 1)
        }
    }

    mutating func takeExtras() -> ServerContext.Extras? {
        var taken: ServerContext.Extras?
        swap(&taken, &self.extras)
        return taken
    }
}

/// The last route that was found: most clients send the same type many times in a row.
struct CachedRoute {
    let type: UInt32
    let route: Router.Route?
    /// The handler for the fast path, and its direct form.
    let openHandlers: (handler: Router.SynchronousHandler, direct: Router.DirectHandler?)?

    init(type: UInt32, route: Router.Route?) {
        self.type = type
        self.route = route
        self.openHandlers = route?.openHandlers
    }
}
