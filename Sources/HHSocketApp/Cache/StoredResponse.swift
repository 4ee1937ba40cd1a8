// SPDX-License-Identifier: Apache-2.0
import HHSocket
public import HHSocketFoundation
import NIOCore

/// An answer as a ``ResponseStore`` keeps it.
public struct StoredResponse: Hashable, Sendable {
    /// The answer, in its own memory, so that it does not keep a larger read buffer alive.
    public package(set) var response: SocketResponse
    /// The time at which the answer arrived or was last revalidated, from which its age counts.
    public package(set) var storedAt: Date
    /// The names of the managers that asked for it.
    public package(set) var owners: Set<String>

    public init(_ response: SocketResponse, storedAt: Date, owners: Set<String> = []) {
        self.response = response
        self.storedAt = storedAt
        self.owners = owners
    }

    /// The name of the metadata that holds the revision of an answer.
    static let revisionName = "revision"
    /// The length of the longest revision that is sent back to the server, in bytes, so that there is room for the
    /// request's own metadata.
    static let maximumRevisionLength = 256

    /// The revision of the answer, as named by the server (metadata `revision`); nil if it named none, or one of more
    /// than 256 bytes.
    package var revision: String? {
        guard let revision = self.response.metadata[Self.revisionName],
            (1...Self.maximumRevisionLength).contains(revision.utf8.count)
        else { return nil }
        return revision
    }

    /// Copies the answer into its own memory.
    static func detached(_ response: SocketResponse) -> SocketResponse {
        SocketResponse(
            type: response.type,
            serial: response.serial,
            status: response.status,
            body: response.body.readableBytes == 0 ? ByteBuffer() : ByteBuffer(bytes: response.body.readableBytesView),
            header: response.header,
            metadata: response.metadata,
            endpoint: response.endpoint
        )
    }

    /// The age of the answer; nil if it is invalid, because the clock was set back since, or the store returned a wrong
    /// time.
    func age(at date: Date) -> Duration? {
        let seconds = date.timeIntervalSince(self.storedAt)
        // A hundred centuries; a `Duration` of anything would not hold it.
        guard seconds >= 0, seconds < 1e12 else { return nil }
        return .seconds(seconds)
    }

    /// The memory that an entry needs besides its bytes, in bytes: its place in the table, and the objects that hold
    /// the answer's parts. Rounded up, so that many small answers do not take more than was allowed.
    private static let overhead = 512
    /// The memory that each value of metadata and each field of a header takes besides its bytes, in bytes.
    private static let valueOverhead = 64

    /// The memory that the answer takes together with its key, in bytes.
    func cost(with key: ResponseKey) -> Int {
        var cost = Self.overhead + key.bytes.count + self.response.body.storageCapacity
        for (name, value) in self.response.metadata { cost += Self.valueOverhead + name.utf8.count + value.utf8.count }
        for (name, value) in self.response.header { cost += Self.valueOverhead + name.utf8.count + value.count }
        for owner in self.owners { cost += Self.valueOverhead + owner.utf8.count }
        return cost
    }
}
