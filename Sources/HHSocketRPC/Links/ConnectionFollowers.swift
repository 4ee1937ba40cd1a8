// SPDX-License-Identifier: Apache-2.0
package import HHSocket

/// Work of several calls that follows a client's connection, such as a transfer.
package protocol ConnectionFollower: AnyObject {
    /// Handles an event of the connection.
    func happened(_ event: SocketEvent)
    /// Handles the release of the client. Work that is submitted from now on does not run.
    func clientIsGone()
}

/// The followers of a client's connection. On the socket thread.
struct ConnectionFollowers {
    private var followers: [ObjectIdentifier: any ConnectionFollower] = [:]

    mutating func add(_ follower: any ConnectionFollower) { self.followers[ObjectIdentifier(follower)] = follower }

    mutating func remove(_ follower: any ConnectionFollower) { self.followers[ObjectIdentifier(follower)] = nil }

    func happened(_ event: SocketEvent) {
        if self.followers.isEmpty { return }
        for follower in self.followers.values { follower.happened(event) }
    }

    mutating func clientIsGone() {
        // They refer to the client's host.
        let followers = self.followers
        self.followers = [:]
        for follower in followers.values { follower.clientIsGone() }
    }
}
