import HHSocket
import NIOCore

#if canImport(FoundationEssentials)
public import FoundationEssentials
#else
import Foundation
#endif

/// An answer as a ``ResponseStore`` keeps it.
public struct StoredResponse: Hashable, Sendable {
    /// The answer. It has a memory of its own, and keeps no larger read in memory.
    public var response: SocketResponse
    /// When it came, or when the server last said that it is still right. Its age counts from here.
    public var storedAt: Date
    /// The names of the managers that asked for it.
    public var owners: Set<String>

    public init(_ response: SocketResponse, storedAt: Date, owners: Set<String> = []) {
        self.response = response
        self.storedAt = storedAt
        self.owners = owners
    }

    /// The name of the metadata that holds the revision of an answer.
    static let revisionName = "revision"
    /// Longer revisions are not sent back to the server, in bytes: there is room for them in no request that has
    /// metadata of its own.
    static let maximumRevisionLength = 256

    /// Which revision of its answer this is, by the server's word (metadata `revision`); nil where it said nothing, or
    /// too much to be repeated (more than 256 bytes).
    public var revision: String? {
        guard let revision = self.response.metadata[Self.revisionName],
            (1...Self.maximumRevisionLength).contains(revision.utf8.count)
        else { return nil }
        return revision
    }

    /// A copy of the answer in memory of its own.
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

    /// How old it is; nil if that makes no sense, because the clock was set back since, or the store made it up.
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

    /// How much memory it takes together with its key, in bytes.
    func cost(with key: ResponseKey) -> Int {
        var cost = Self.overhead + key.bytes.count + self.response.body.storageCapacity
        for (name, value) in self.response.metadata { cost += Self.valueOverhead + name.utf8.count + value.utf8.count }
        for (name, value) in self.response.header { cost += Self.valueOverhead + name.utf8.count + value.count }
        for owner in self.owners { cost += Self.valueOverhead + owner.utf8.count }
        return cost
    }
}
