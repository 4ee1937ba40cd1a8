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
        /// Ends the entry when it takes too long.
        var timer: SocketLoop.TimerID
    }

    /// Made, and not ready yet.
    var pending: Entry?
    var ready: Entry?
    var draining: [ConnectionID: Draining] = [:]
    /// Links that are closed by choice, until their channels are closed.
    var closing: [ConnectionID: (link: any DrivenLink, gone: EventLoopFuture<Void>)] = [:]
    /// The reasons for those of them whose loss is reported when they are closed.
    var parting: [ConnectionID: SocketError] = [:]
    /// Attempts that begin when there is no link, if links must not overlap.
    var waiting: [(id: ConnectionID, endpoint: Endpoint)] = []

    /// The links on which the user's data is sent.
    var inUse: [any DrivenLink] { self.draining.values.map { $0.entry.link } + (self.ready.map { [$0.link] } ?? []) }

    /// The link that is ready, if it is this one.
    func ready(_ id: ConnectionID) -> (any DrivenLink)? { self.ready?.link.id == id ? self.ready?.link : nil }
}
