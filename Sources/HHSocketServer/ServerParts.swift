// SPDX-License-Identifier: Apache-2.0
import HHSocketLink

/// The objects that the connections of a running server share: its rules, its books and its services.
final class ServerParts: Sendable {
    let rules: RequestRules
    let books: ServerBooks
    let services: ServerServices

    /// - Parameter loopCount: The number of event loops.
    init(
        _ configuration: ServerConfiguration,
        router: Router,
        quota: ConnectionQuota.Limits,
        loopCount: Int
    ) {
        self.services = ServerServices(configuration)
        self.rules = RequestRules(configuration, router, blockingOn: self.services.threads)
        self.books = ServerBooks(configuration, quota, loopCount: loopCount)
    }
}
