// SPDX-License-Identifier: Apache-2.0
import Dispatch
import Foundation
import HHSocket
import HHSocketRPC
import HHSocketTransferValues
import NIOCore
import TestSupport
import Testing

@testable import HHSocketTransfers

/// Local files of puts.
@Suite(.tags(.io), .timeLimit(.minutes(5))) struct TransferSourceTests {
    private let folder: TemporaryFolder
    private let files = FaultyFiles()

    init() throws { self.folder = try TemporaryFolder() }

    /// The other thread that may read while a file is hashed.
    enum Helper: CaseIterable {
        case none, atOnce, thread
    }

    private func source(_ path: String, pieceLength: Int = 1_000, _ helper: Helper = .none) -> FileSource {
        FileSource(path, what: "put", pieceLength: pieceLength, files: self.files) { job in
            switch helper {
            case .none: break
            case .atOnce: job()
            case .thread: DispatchQueue.global().async(execute: job)
            }
        }
    }

    private func code(_ body: () throws(TransferError) -> Void) -> TransferError.Code? {
        do throws(TransferError) {
            try body()
            return nil
        } catch {
            return error.code
        }
    }

    @Test(arguments: Helper.allCases) func aFileIsDescribedAndReadInPieces(_ helper: Helper) throws {
        let text = String(repeating: "0123456789", count: 250)
        let source = self.source(try self.folder.write(text, to: "f"), helper)
        self.files.shorten(to: 7)
        let file = try self.describe(source)
        var hash = SHA256()
        Array(text.utf8).withUnsafeBytes { hash.update($0) }
        #expect(file == TransferFile(size: 2_500, sha256: TransferDigest(hash)))
        let item = try #require(try source.items(offset: 1_000, length: 25).first)
        let part = try #require(TransferPart(item: item))
        #expect(part.offset == 1_000 && String(buffer: part.bytes) == "0123456789012345678901234".prefix(25))
        source.close()
        #expect(self.files.openCount == 0)
    }

    @Test func onlyPlainFilesAreRead() throws {
        let pipe = self.folder.file("pipe")
        #expect(mkfifo(pipe, 0o600) == 0)
        for path in [pipe, self.folder.path, "/dev/null"] {
            let source = self.source(path)
            #expect(
                self.code { () throws(TransferError) in _ = try self.describe(source) } == .fileFailed,
                "\(path)"
            )
        }
        let none = self.source(self.folder.file("none"))
        #expect(self.code { () throws(TransferError) in _ = try self.describe(none) } == .fileFailed)
        #expect(self.files.openCount == 0)
    }

    @Test(arguments: Helper.allCases, [0, 1, 2]) func anErrorOfTheSystemNamesTheFile(
        _ helper: Helper,
        _ reads: Int
    ) throws {
        let path = try self.folder.write(String(repeating: "x", count: 3_000), to: "f")
        self.files.fail(.read, after: reads, with: EIO)
        let source = self.source(path, helper)
        do throws(TransferError) {
            _ = try self.describe(source)
            Issue.record("read")
        } catch {
            #expect(error.message.contains(path) && error.message.contains("Input/output error"))
        }
    }

    @Test(arguments: Helper.allCases) func aLargeFileIsHashedInSteps(_ helper: Helper) throws {
        let text = String(repeating: "x", count: 40 << 20)
        let source = self.source(try self.folder.write(text, to: "f"), pieceLength: 1 << 20, helper)
        #expect(try source.describe(step: HashedPart.step) == nil)
        #expect(self.files.count(.read) == 16)
        #expect(try source.describe(step: HashedPart.step) == nil)
        let file = try #require(try source.describe(step: HashedPart.step))
        #expect(file.size == 40 << 20)
        // Hashing starts over.
        #expect(try self.describe(source) == file)
    }

    /// Describes a source in as many steps as necessary.
    private func describe(_ source: FileSource) throws(TransferError) -> TransferFile {
        while true {
            if let file = try source.describe(step: HashedPart.step) { return file }
        }
    }

    enum Change: CaseIterable { case longer, shorter, rewritten, replaced }

    @Test(arguments: Change.allCases) func aFileThatChangesIsNoticed(_ change: Change) throws {
        let path = try self.folder.write(String(repeating: "x", count: 5_000), to: "f")
        let source = self.source(path)
        _ = try self.describe(source)
        switch change {
        case .longer:
            let handle = try #require(FileHandle(forWritingAtPath: path))
            try handle.seekToEnd()
            try handle.write(contentsOf: Data([1]))
        case .shorter: #expect(truncate(path, 4_999) == 0)
        case .rewritten:
            // The clock of files is too coarse for a fast test.
            var times = [timeval(tv_sec: 1_000, tv_usec: 1), timeval(tv_sec: 1_000, tv_usec: 1)]
            #expect(utimes(path, &times) == 0)
        case .replaced:
            let other = try self.folder.write(String(repeating: "y", count: 5_000), to: "g")
            #expect(rename(other, path) == 0)
        }
        #expect(
            self.code { () throws(TransferError) in _ = try source.items(offset: 0, length: 100) } == .sourceChanged
        )
    }

    @Test(arguments: Helper.allCases) func aFileThatChangesWhileItIsHashedIsNoticed(_ helper: Helper) throws {
        let path = try self.folder.write(String(repeating: "x", count: 5_000), to: "f")
        self.files.before(.read, after: 3) { truncate(path, 100) }
        let source = self.source(path, helper)
        #expect(self.code { () throws(TransferError) in _ = try self.describe(source) } == .sourceChanged)
    }

    @Test func oneThatIsRemovedIsReadToItsEnd() throws {
        let path = try self.folder.write(String(repeating: "x", count: 5_000), to: "f")
        let source = self.source(path)
        _ = try self.describe(source)
        #expect(unlink(path) == 0)
        #expect(try source.items(offset: 4_000, length: 1_000).map(\.readableBytes).reduce(0, +) > 1_000)
    }

    @Test func bytesInMemoryAreASourceToo() throws {
        var buffer = ByteBuffer(string: "skipped content")
        buffer.moveReaderIndex(forwardBy: 8)
        let source = MemorySource(buffer)
        #expect(try source.describe(step: HashedPart.step)?.size == 7)
        let item = try #require(try source.items(offset: 3, length: 4).first)
        let part = try #require(TransferPart(item: item))
        #expect(part.offset == 3 && String(buffer: part.bytes) == "tent")
    }
}
