// SPDX-License-Identifier: Apache-2.0
import HHSocketRPC
import HHSocketSystem
package import HHSocketTransferValues
import NIOCore

/// An open descriptor, such as standard output, to which content is written as it arrives. Written bytes cannot be
/// taken back, so once anything of a file was written, that file is completed, or the transfer fails.
final class DescriptorSink: TransferSink, @unchecked Sendable {
    // Proof of Sendable: the constants are Sendable; the variables are accessed only by the methods, which ``FileWork``
    // calls one after the other.
    private let descriptor: CInt
    private let what: String
    private var hash = SHA256()
    private var file: TransferFile?
    private var length: UInt64 = 0

    /// - Parameters:
    ///   - descriptor: The descriptor, which stays open.
    ///   - what: The transfer, for errors.
    init(_ descriptor: CInt, what: String) {
        self.descriptor = descriptor
        self.what = what
    }

    func prepare() throws(TransferError) -> Preparation { .done(nil) }

    func create(_ file: TransferFile) throws(TransferError) {
        guard self.length == 0 else {
            throw TransferError(
                .sourceChanged,
                """
                \(self.what): the store's file was replaced when \(self.length) bytes of the old one had been written, \
                which cannot be taken back; get it again
                """
            )
        }
        self.file = file
    }

    func append(_ contents: [ByteBuffer]) throws(TransferError) -> UInt64 {
        for content in contents { try self.append(content) }
        return self.length
    }

    private func append(_ content: ByteBuffer) throws(TransferError) {
        let number: CInt? = content.withUnsafeReadableBytes { bytes in
            if let number = writeAll(bytes, to: self.descriptor) { return number }
            self.hash.update(bytes)
            return nil
        }
        if let number {
            throw TransferError(
                number == ENOSPC ? .noRoom : .fileFailed,
                "\(self.what): the output cannot be written: \(String(cString: strerror(number)))"
            )
        }
        self.length += UInt64(content.readableBytes)
    }

    func finish() throws(TransferError) -> Bool {
        guard self.length == 0 || self.file?.sha256 == TransferDigest(self.hash) else {
            throw TransferError(
                .wrongHash,
                "\(self.what): the written content has another hash than the server announced"
            )
        }
        return self.file?.sha256 == TransferDigest(self.hash)
    }

    func discard() {}
    func close() {}
}

extension TransferClient {
    /// Fetches a file into an open descriptor, such as standard output: as it arrives, and so not in one step. If the
    /// store's file is replaced after something was written, the transfer fails with `sourceChanged`.
    ///
    /// - Parameter descriptor: It is not closed. A slow reader delays the threads that all transfers of the process
    ///   share.
    package func get(_ id: TransferID, toDescriptor descriptor: CInt) -> Transfer {
        let sink = DescriptorSink(descriptor, what: "get of \(id)")
        return self.begin(nil) { GetRun(id, to: sink, $0) }
    }
}
