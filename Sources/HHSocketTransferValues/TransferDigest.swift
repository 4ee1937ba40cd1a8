// SPDX-License-Identifier: Apache-2.0
package import HHSocketFoundation
package import HHSocketLink

/// The SHA-256 of a file's content.
public struct TransferDigest: Hashable, Sendable, CustomStringConvertible {
    /// The number of its bytes.
    package static let byteCount = 32

    /// Its 32 bytes.
    public let bytes: [UInt8]

    /// A digest of 32 bytes. Nil for any other number of bytes.
    public init?(bytes: some Sequence<UInt8>) {
        let bytes = Array(bytes)
        guard bytes.count == Self.byteCount else { return nil }
        self.bytes = bytes
    }

    /// A digest of 64 hexadecimal digits, upper or lower case. Nil if `text` is anything else.
    public init?(hexadecimal text: some StringProtocol) {
        guard let bytes = [UInt8](hexadecimal: text), bytes.count == Self.byteCount else { return nil }
        self.bytes = bytes
    }

    package init(_ hash: SHA256) { self.bytes = hash.finalize() }

    /// The digest of content that is in memory.
    package init(of content: UnsafeRawBufferPointer) { self.bytes = SHA256.hash(of: content) }

    /// The digest as it is sent.
    package var data: Data { Data(self.bytes) }

    /// 64 hexadecimal digits, lower case.
    public var description: String { self.bytes.hexadecimal }
}

/// The content of a file, by its size and hash.
public struct TransferFile: Hashable, Sendable {
    /// The length, in bytes.
    public package(set) var size: UInt64
    /// The SHA-256 of the whole file.
    public package(set) var sha256: TransferDigest

    public init(size: UInt64, sha256: TransferDigest) {
        self.size = size
        self.sha256 = sha256
    }

    /// The description of content that is in memory.
    package init(of content: UnsafeRawBufferPointer) {
        self.init(size: UInt64(content.count), sha256: TransferDigest(of: content))
    }

    /// Nil if the hash is not 32 bytes long, as a stranger's may be.
    package init?(_ message: Hhsocket_TransferFile) {
        guard let digest = TransferDigest(bytes: message.sha256) else { return nil }
        self.init(size: message.size, sha256: digest)
    }

    /// The description as it is sent.
    package var message: Hhsocket_TransferFile {
        var message = Hhsocket_TransferFile()
        message.size = self.size
        message.sha256 = self.sha256.data
        return message
    }
}
