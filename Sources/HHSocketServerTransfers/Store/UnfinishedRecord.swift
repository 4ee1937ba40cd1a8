// SPDX-License-Identifier: Apache-2.0
import HHSocketServer
import HHSocketTransferValues
import NIOCore

/// The description of an unfinished file, stored beside it.
struct UnfinishedRecord: Hashable, Sendable {
    /// The number of superseded writers that are remembered: the last ones.
    static let maximumSuperseded = 64
    /// The length of an owner's name in bytes above which a hash is stored instead.
    static let maximumOwnerLength = 256

    var id: TransferID
    /// The file that it will be. Its hash stands for one that is not known yet if it is that of ``TransferPut/early``.
    private(set) var file: TransferFile
    /// The part of the content's name that differs for other content: the hash of the file, as it was when this content
    /// was begun.
    private(set) var name: TransferDigest
    var writer: UInt64
    /// The writers before this one, the oldest first.
    private(set) var superseded: [UInt64] = []
    /// The owner whose limits apply.
    private(set) var owner: String
    /// The time at which this content was begun, in milliseconds since 1970.
    var begun: UInt64

    init(_ put: TransferPut, begun: UInt64) {
        self.id = put.id
        self.file = put.file
        self.name = put.file.sha256
        self.writer = put.writer
        self.owner = Self.short(put.owner)
        self.begun = begun
    }

    /// The name of the received content.
    var contentName: String { FolderNames.content(self.id, self.name) }

    /// Records the hash of the content, which was not known before. The content keeps its name, so that this is done
    /// when the record is replaced.
    mutating func identify(as sha256: TransferDigest) { self.file.sha256 = sha256 }

    /// Returns a short name for an owner, whose name may be long.
    static func short(_ owner: String) -> String {
        guard owner.utf8.count > Self.maximumOwnerLength else { return owner }
        return "sha256 \(Array(owner.utf8).withUnsafeBytes { TransferDigest(of: $0) })"
    }

    /// Records that `put` continues the file, or begins it with other content.
    mutating func continueWith(_ put: TransferPut, now: UInt64) {
        if put.writer != self.writer {
            self.superseded.append(self.writer)
            self.superseded.removeFirst(max(0, self.superseded.count - Self.maximumSuperseded))
            self.writer = put.writer
        }
        if put.file != self.file {
            self.file = put.file
            self.name = put.file.sha256
            self.begun = now
        }
        self.owner = Self.short(put.owner)
    }

    // MARK: Bytes

    private static let kind = "HHU1"

    var bytes: [UInt8] {
        SealedRecord.seal(Self.kind) { record in
            record.writeShortString(self.id.description)
            record.writeInteger(self.file.size)
            record.writeDigest(self.file.sha256)
            record.writeInteger(self.writer)
            record.writeInteger(UInt16(self.superseded.count))
            for writer in self.superseded { record.writeInteger(writer) }
            record.writeShortString(self.owner)
            record.writeInteger(self.begun)
            if self.name != self.file.sha256 { record.writeDigest(self.name) }
        }
    }

    /// Nil for bytes that ``bytes`` has not made, or not like this.
    init?(bytes: [UInt8]) {
        let record: Self? = SealedRecord.open(bytes, kind: Self.kind) { Self(reading: &$0) }
        guard let record else { return nil }
        self = record
    }

    private init?(reading record: inout ByteBuffer) {
        guard let id = record.readShortString().flatMap({ TransferID($0) }),
            let size = record.readInteger(as: UInt64.self), size <= UInt64(Int64.max),
            let digest = record.readDigest(),
            let writer = record.readInteger(as: UInt64.self),
            let count = record.readInteger(as: UInt16.self), count <= Self.maximumSuperseded
        else { return nil }
        var superseded: [UInt64] = []
        for _ in 0..<count {
            guard let writer = record.readInteger(as: UInt64.self) else { return nil }
            superseded.append(writer)
        }
        guard let owner = record.readShortString(), owner.utf8.count <= Self.maximumOwnerLength,
            let begun = record.readInteger(as: UInt64.self),
            let name = record.readableBytes == 0 ? digest : record.readDigest()
        else { return nil }
        self.id = id
        self.file = TransferFile(size: size, sha256: digest)
        self.name = name
        self.writer = writer
        self.superseded = superseded
        self.owner = owner
        self.begun = begun
    }
}
