// SPDX-License-Identifier: Apache-2.0
import NIOCore

/// The links of a driver, and how far each is: one is being made, one is ready, others drain or close.
struct DriverLinks {
    struct Entry {
        var link: any DrivenLink
        var endpoint: Endpoint
        /// The link as its maker returned it, until it is ready.
        var made: (any MadeLink)?
        /// Closes the link if it drains for too long.
        var timer: SocketLoop.TimerID?
    }

    /// Made, and not ready yet.
    var pending: Entry?
    var ready: Entry?
    var draining: [ConnectionID: Entry] = [:]
    /// Links that are closed by choice, until their channels are closed.
    var closing: [ConnectionID: (link: any DrivenLink, gone: EventLoopFuture<Void>)] = [:]
    /// The reasons for those of them whose loss is reported when they are closed.
    var parting: [ConnectionID: SocketError] = [:]
    /// Attempts that begin when there is no link, if links must not overlap.
    var waiting: [(id: ConnectionID, endpoint: Endpoint)] = []

    /// The links on which the user's data is sent.
    var inUse: [any DrivenLink] { self.draining.values.map(\.link) + (self.ready.map { [$0.link] } ?? []) }

    /// The link in the making, if it is this one.
    func made(_ id: ConnectionID) -> (any MadeLink)? { self.pending?.link.id == id ? self.pending?.made : nil }

    /// The link that is ready, if it is this one.
    func ready(_ id: ConnectionID) -> (any DrivenLink)? { self.ready?.link.id == id ? self.ready?.link : nil }

    /// Removes a link that is not closing yet; nil if there is none with this identifier.
    mutating func take(_ id: ConnectionID) -> Entry? {
        if let pending = self.pending, pending.link.id == id {
            self.pending = nil
            return pending
        }
        if let ready = self.ready, ready.link.id == id {
            self.ready = nil
            return ready
        }
        return self.draining.removeValue(forKey: id)
    }
}
