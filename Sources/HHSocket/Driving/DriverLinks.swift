// SPDX-License-Identifier: Apache-2.0
import NIOCore

/// The links of a driver, and how far each is: one is being made, one is ready, others drain or close.
struct DriverLinks {
    struct Entry {
        var link: any DrivenLink
        var endpoint: Endpoint
    }

    struct Draining {
        var entry: Entry
        /// Ends it when it takes too long.
        var timer: SocketLoop.TimerID
    }

    /// Made, and not ready yet.
    var pending: Entry?
    var ready: Entry?
    var draining: [ConnectionID: Draining] = [:]
    /// Those that close by choice, until their channels are gone.
    var closing: [ConnectionID: (link: any DrivenLink, gone: EventLoopFuture<Void>)] = [:]
    /// Of these, those whose loss is reported when they are gone, with the reason.
    var parting: [ConnectionID: SocketError] = [:]
    /// Attempts that begin when no link is left, where links may not overlap.
    var waiting: [(id: ConnectionID, endpoint: Endpoint)] = []

    /// Those that carry what the user sends.
    var inUse: [any DrivenLink] { self.draining.values.map { $0.entry.link } + (self.ready.map { [$0.link] } ?? []) }

    /// The link that is ready, if it is this one.
    func ready(_ id: ConnectionID) -> (any DrivenLink)? { self.ready?.link.id == id ? self.ready?.link : nil }
}
